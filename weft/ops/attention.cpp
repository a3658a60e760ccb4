#include "weft/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "weft/base/philox.h"
#include "weft/ops/function.h"

namespace weft {
namespace {

constexpr int64_t kQueryBlock = 256;  // bounds the scores in memory: heads x block x keys

// A block of one span's queries and the keys that any of them sees.
struct Block {
  int64_t q_begin, q_end, k_begin, k_end;
  int64_t offset;  // key index of query q is q + offset

  int64_t queries() const { return q_end - q_begin; }
  int64_t keys() const { return k_end - k_begin; }
};

template <class F>
void for_each_block(const std::vector<AttentionSpan>& spans, const AttentionOptions& options, const F& f) {
  for (const AttentionSpan& span : spans) {
    const int64_t offset = span.k_end - span.q_end;
    for (int64_t begin = span.q_begin; begin < span.q_end; begin += kQueryBlock) {
      const int64_t end = std::min(begin + kQueryBlock, span.q_end);
      const int64_t first = options.window > 0 ? begin + offset - options.window + 1 : span.k_begin;
      f(Block{begin, end, std::max(span.k_begin, first), end + offset, offset});
    }
  }
}

// Heads of a block, grouped by the key/value head they share: [n_kv_heads, group * rows, head_dim].
at::Tensor grouped(const at::Tensor& x, int64_t begin, int64_t end, int64_t n_kv_heads) {
  const int64_t rows = end - begin, group = x.size(1) / n_kv_heads, dim = x.size(2);
  return x.narrow(0, begin, rows)
      .view({rows, n_kv_heads, group, dim})
      .permute({1, 2, 0, 3})
      .reshape({n_kv_heads, group * rows, dim});
}

// The inverse of grouped(): a view of a block's rows of x, shaped [n_kv_heads, group, rows, head_dim].
at::Tensor grouped_view(const at::Tensor& x, int64_t begin, int64_t end, int64_t n_kv_heads) {
  return x.narrow(0, begin, end - begin)
      .view({end - begin, n_kv_heads, x.size(1) / n_kv_heads, x.size(2)})
      .permute({1, 2, 0, 3});
}

at::Tensor heads_of_keys(const at::Tensor& x, const Block& b) {
  return x.narrow(0, b.k_begin, b.keys()).transpose(0, 1);  // [n_kv_heads, keys, head_dim]
}

// Scores after scale and soft-cap: [n_kv_heads, group, queries, keys].
at::Tensor capped_scores(const at::Tensor& q_grouped, const at::Tensor& k_heads, const Block& b,
                         const AttentionOptions& options) {
  at::Tensor s = at::bmm(q_grouped, k_heads.transpose(1, 2)).mul_(options.scale);
  if (options.softcap > 0) s.div_(options.softcap).tanh_().mul_(options.softcap);
  return s.view({options.n_kv_heads, -1, b.queries(), b.keys()});
}

// Adds ALiBi, and puts -inf where a query may not see a key; in place.
void bias_scores(at::Tensor& s, const Block& b, const AttentionOptions& options) {
  const auto ints = s.options().dtype(at::kLong);
  const at::Tensor q = at::arange(b.q_begin + b.offset, b.q_end + b.offset, ints).unsqueeze(1);
  const at::Tensor k = at::arange(b.k_begin, b.k_end, ints).unsqueeze(0);
  if (!options.alibi_slopes.empty()) {
    const at::Tensor slopes = at::tensor(options.alibi_slopes, s.options());
    s.addcmul_(slopes.view({options.n_kv_heads, -1, 1, 1}), (k - q).to(s.scalar_type()));
  }
  at::Tensor forbidden = k > q;
  if (options.window > 0) forbidden.logical_or_(k <= q - options.window);
  s.masked_fill_(forbidden, -std::numeric_limits<double>::infinity());
}

// 1 / (1 - p) where a probability is kept, else 0: [n_kv_heads, group, queries, keys]. A key's global token
// index picks the number, so the mask does not depend on how the micro-batch is laid out.
at::Tensor dropout_mask(const Block& b, const AttentionOptions& options, const at::Tensor& index,
                        const at::TensorOptions& like) {
  const Dropout& d = options.dropout;
  const int64_t heads = options.n_heads, queries = b.queries(), keys = b.keys();
  const int64_t all_heads = options.all_heads > 0 ? options.all_heads : heads;
  at::Tensor mask = at::empty({options.n_kv_heads, heads / options.n_kv_heads, queries, keys}, like);
  const int64_t* token = index.const_data_ptr<int64_t>();
  const uint64_t threshold = d.threshold();
  AT_DISPATCH_FLOATING_TYPES(mask.scalar_type(), "attention_dropout", [&] {
    scalar_t* out = mask.data_ptr<scalar_t>();
    const scalar_t kept = scalar_t(1 / (1 - d.p));
    at::parallel_for(0, heads * queries, 8, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t head = row / queries, query = b.q_begin + row % queries;
        const uint64_t row_index = uint64_t(token[query] * all_heads + options.first_head + head);
        for (int64_t k = 0; k < keys; ++k) {
          const uint64_t key = uint64_t(token[b.k_begin + k]);
          out[row * keys + k] = philox(d.key, row_index, key)[0] < threshold ? scalar_t(0) : kept;
        }
      }
    });
  });
  return mask;
}

std::vector<AttentionSpan> spans_of(const std::vector<int64_t>& cu_seqlens) {
  std::vector<AttentionSpan> spans;
  for (size_t d = 0; d + 1 < cu_seqlens.size(); ++d)
    spans.push_back({cu_seqlens[d], cu_seqlens[d + 1], cu_seqlens[d], cu_seqlens[d + 1]});
  return spans;
}

class Attention : public Op {
 public:
  Attention(const std::vector<int64_t>& cu_seqlens, const AttentionOptions& options, const at::Tensor& index)
      : spans_(spans_of(cu_seqlens)), options_(options), index_(index) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    const auto [q, k, v] = parts(inputs[0]);
    const AttentionOutput result = attention_forward(q, k, v, spans_, options_, index_);
    if (recording) qkv_ = Saved(inputs[0]), out_ = Saved(result.out), lse_ = Saved(result.lse);
    return {result.out, result.lse};
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    const auto [q, k, v] = parts(qkv_.get());
    const at::Tensor d_out = grads[0].reshape(q.sizes());
    at::Tensor d_qkv = at::zeros_like(qkv_.get());
    const auto [dq, dk, dv] = parts(d_qkv);
    // Row sums of dP * P, taken from the output: sum_k P_k (dO . v_k) = dO . O.
    const at::Tensor delta = (d_out * out_.get().view(q.sizes())).sum(-1).t();  // [n_heads, tokens]
    for_each_block(spans_, options_,
                   [&](const Block& b) { block_backward(b, q, k, v, d_out, delta, dq, dk, dv); });
    return {d_qkv};
  }

  size_t differentiable_outputs(size_t) const override { return 1; }  // not the log-sum-exp

  const char* name() const override { return "attention"; }
  std::vector<at::Tensor> kept() const override { return {qkv_.get(), out_.get(), lse_.get()}; }

  // Whole blocks of scores, the masked ones among them. Forward: q k' and p v. Backward: q k' again, and the
  // gradients of p, v, q and k.
  Work work(Pass pass, at::TensorList taken, at::TensorList given) const override {
    double scores = 0;
    for_each_block(spans_, options_,
                   [&](const Block& b) { scores += double(b.queries()) * double(b.keys()); });
    const at::Tensor& out = pass == Pass::forward ? given[0] : taken[0];  // [tokens, n_heads * head_dim]
    const double product = 2.0 * scores * double(out.size(1));
    return {(pass == Pass::forward ? 2 : 5) * product, Op::work(pass, taken, given).bytes};
  }

 private:
  // qkv -> its q, k and v heads, as views.
  std::array<at::Tensor, 3> parts(const at::Tensor& qkv) const {
    const int64_t h = options_.n_heads, kv = options_.n_kv_heads;
    return {qkv.narrow(1, 0, h), qkv.narrow(1, h, kv), qkv.narrow(1, h + kv, kv)};
  }

  void block_backward(const Block& b, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& d_out, const at::Tensor& delta, at::Tensor dq, at::Tensor dk,
                      at::Tensor dv) const {
    const int64_t kv = options_.n_kv_heads;
    const at::Tensor qg = grouped(q, b.q_begin, b.q_end, kv), dog = grouped(d_out, b.q_begin, b.q_end, kv);
    const at::Tensor kh = heads_of_keys(k, b), vh = heads_of_keys(v, b);
    const auto row_stat = [&](const at::Tensor& x) {  // [n_heads, tokens] -> [n_kv_heads, group, queries, 1]
      return x.narrow(1, b.q_begin, b.queries()).reshape({kv, -1, b.queries(), 1});
    };
    at::Tensor s = capped_scores(qg, kh, b, options_);
    at::Tensor cap_derivative;  // d/ds of cap tanh(s / cap) is 1 - (capped / cap)^2
    if (options_.softcap > 0) cap_derivative = 1 - (s / options_.softcap).square_();
    bias_scores(s, b, options_);
    const at::Tensor p = s.sub_(row_stat(lse_.get())).exp_();
    at::Tensor dp = at::bmm(dog, vh.transpose(1, 2)).view(p.sizes());
    at::Tensor p_dropped = p;
    if (options_.dropout.p > 0) {
      const at::Tensor mask = dropout_mask(b, options_, index_, p.options());
      p_dropped = p * mask;
      dp.mul_(mask);
    }
    at::Tensor ds = dp.sub_(row_stat(delta)).mul_(p);
    if (cap_derivative.defined()) ds.mul_(cap_derivative);
    ds.mul_(options_.scale);
    const auto flat = [&](const at::Tensor& x) { return x.view({kv, -1, b.keys()}); };
    grouped_view(dq, b.q_begin, b.q_end, kv)
        .copy_(at::bmm(flat(ds), kh).view({kv, -1, b.queries(), q.size(2)}));
    heads_of_keys(dk, b).add_(at::bmm(flat(ds).transpose(1, 2), qg));
    heads_of_keys(dv, b).add_(at::bmm(flat(p_dropped).transpose(1, 2), dog));
  }

  std::vector<AttentionSpan> spans_;
  AttentionOptions options_;
  at::Tensor index_;
  Saved qkv_, out_, lse_;
};

}  // namespace

std::vector<double> alibi_slopes(int64_t n_heads) {
  int64_t power = 1;
  while (2 * power <= n_heads) power *= 2;
  std::vector<double> slopes;
  for (int64_t i = 1; i <= power; ++i) slopes.push_back(std::exp2(-8.0 * double(i) / double(power)));
  for (int64_t i = 1; i <= n_heads - power; ++i)
    slopes.push_back(std::exp2(-8.0 * double(2 * i - 1) / double(2 * power)));
  return slopes;
}

AttentionOutput attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::vector<AttentionSpan>& spans, const AttentionOptions& options,
                                  const at::Tensor& index) {
  const int64_t kv = options.n_kv_heads;
  at::Tensor out = at::zeros(q.sizes(), q.options());
  at::Tensor lse = at::empty({options.n_heads, q.size(0)}, q.options());
  for_each_block(spans, options, [&](const Block& b) {
    at::Tensor p = capped_scores(grouped(q, b.q_begin, b.q_end, kv), heads_of_keys(k, b), b, options);
    bias_scores(p, b, options);
    const at::Tensor block_lse = p.logsumexp(-1, /*keepdim=*/true);
    p.sub_(block_lse).exp_();
    if (options.dropout.p > 0) p.mul_(dropout_mask(b, options, index, p.options()));
    const at::Tensor o = at::bmm(p.view({kv, -1, b.keys()}), heads_of_keys(v, b));
    grouped_view(out, b.q_begin, b.q_end, kv).copy_(o.view({kv, -1, b.queries(), q.size(2)}));
    lse.narrow(1, b.q_begin, b.queries()).copy_(block_lse.view({options.n_heads, b.queries()}));
  });
  return {out.view({q.size(0), -1}), lse};
}

AttentionOutput attention(const at::Tensor& qkv, const std::vector<int64_t>& cu_seqlens,
                          const AttentionOptions& options, const at::Tensor& index) {
  const auto outputs = apply(std::make_shared<Attention>(cu_seqlens, options, index), {qkv});
  return {outputs[0], outputs[1]};
}

}  // namespace weft
