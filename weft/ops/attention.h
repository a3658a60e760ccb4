// Causal attention over a flat micro-batch: documents do not see each other, query heads share key/value
// heads in groups (GQA), optionally within a sliding window, with soft-capped scores, and with ALiBi (Press
// et al. 2021). Scores exist for one block of queries at a time; backward recomputes them from the
// log-sum-exp (Dao et al. 2022).
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/ops/dropout.h"

namespace weft {

struct AttentionOptions {
  int64_t n_heads = 1;
  int64_t n_kv_heads = 1;
  double scale = 1;                       // scores are scale * q.k
  int64_t window = 0;                     // keys a query sees, itself included; 0: all before it
  double softcap = 0;                     // s -> softcap tanh(s / softcap); 0: off
  std::vector<double> alibi_slopes = {};  // [n_heads]: -slope * distance is added to the scores; empty: off
  Dropout dropout;                        // of the probabilities
  int64_t first_head = 0, all_heads = 0;  // of the model these are n_heads from the first; 0: these are all
};

/// The slopes of n heads: 2^(-8 i / n), i from 1; where n is no power of two, those of the power of two below
/// it, then every other one of the next power's.
std::vector<double> alibi_slopes(int64_t n_heads);

/// One document: its queries and its keys. The last query sees the last key, so with fewer queries than keys
/// (generation with a cache) the earlier keys are the past.
struct AttentionSpan {
  int64_t q_begin, q_end, k_begin, k_end;
};

struct AttentionOutput {
  at::Tensor out;  // [tokens, n_heads * head_dim]
  at::Tensor lse;  // [n_heads, tokens]: natural log-sum-exp of each query's scores; not differentiable
};

/// qkv [tokens, n_heads + 2 n_kv_heads, head_dim]; document d is tokens [cu_seqlens[d], cu_seqlens[d + 1]);
/// index [tokens] are global token indices, for dropout only (may be undefined without).
AttentionOutput attention(const at::Tensor& qkv, const std::vector<int64_t>& cu_seqlens,
                          const AttentionOptions& options, const at::Tensor& index = {});

/// The forward alone, with queries and keys apart. q [queries, n_heads, head_dim], k and v [keys, n_kv_heads,
/// head_dim].
AttentionOutput attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::vector<AttentionSpan>& spans, const AttentionOptions& options,
                                  const at::Tensor& index = {});

}  // namespace weft
