#include "weft/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <ATen/ATen.h>

#include "weft/ops/function.h"

namespace weft {
namespace {

// Llama 3.1: long wavelengths are slowed by the factor, short ones kept, those between interpolated.
void scale_llama3(const ModelConfig& model, std::vector<double>* inverse) {
  const double length = double(model.rope_original_seq_len);
  for (double& f : *inverse) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength < length / model.rope_high_freq_factor) continue;
    const double slowed = f / model.rope_factor;
    const double smooth = (length / wavelength - model.rope_low_freq_factor) /
                          (model.rope_high_freq_factor - model.rope_low_freq_factor);
    f = wavelength > length / model.rope_low_freq_factor ? slowed : (1 - smooth) * slowed + smooth * f;
  }
}

// Yarn: dims that turn often within the original length are kept, those that turn seldom interpolated, a ramp
// between.
void scale_yarn(const ModelConfig& model, double theta, RopeFrequencies* frequencies) {
  const int64_t half = int64_t(frequencies->inverse.size());
  const double dim = 2.0 * double(half);
  const auto dim_of_rotations = [&](double rotations) {
    return dim * std::log(double(model.rope_original_seq_len) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  double low = dim_of_rotations(model.rope_beta_fast), high = dim_of_rotations(model.rope_beta_slow);
  if (model.rope_truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dim - 1);
  if (low == high) high += 0.001;  // the published code's guard against a step
  for (int64_t i = 0; i < half; ++i) {
    double& f = frequencies->inverse[size_t(i)];
    const double kept = 1 - std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    f = f / model.rope_factor * (1 - kept) + f * kept;
  }
  frequencies->scale = model.rope_attention_factor;
}

// A base that grows with the document beyond the original length, so that the slowest dim is interpolated.
double dynamic_theta(const ModelConfig& model, double theta, int64_t length) {
  const double dim = double(model.rope_dim), original = double(model.rope_original_seq_len);
  if (double(length) <= original) return theta;
  const double stretch = model.rope_factor * double(length) / original - (model.rope_factor - 1);
  return theta * std::pow(stretch, dim / (dim - 2));
}

void scale_longrope(const ModelConfig& model, int64_t length, RopeFrequencies* frequencies) {
  const bool is_long = length > model.rope_original_seq_len;
  const std::vector<double>& factors = is_long ? model.rope_long_factors : model.rope_short_factors;
  for (size_t i = 0; i < factors.size(); ++i) frequencies->inverse[i] /= factors[i];
  frequencies->scale = model.rope_attention_factor;
}

bool depends_on_length(const ModelConfig& model) {
  return model.rope_scaling == "dynamic" || model.rope_scaling == "longrope";
}

void rotate(const at::Tensor& in, const at::Tensor& cos, const at::Tensor& sin, at::Tensor out) {
  const int64_t half = cos.size(2), still = in.size(2) - 2 * half;
  const at::Tensor a = in.narrow(2, 0, half), b = in.narrow(2, half, half);
  out.narrow(2, 0, half).copy_(a * cos - b * sin);
  out.narrow(2, half, half).copy_(b * cos + a * sin);
  if (still > 0) out.narrow(2, 2 * half, still).copy_(in.narrow(2, 2 * half, still));
}

class Rope : public Op {
 public:
  Rope(int64_t n_rotated, const RopeTable& table)
      : n_rotated_(n_rotated), cos_(table.cos.unsqueeze(1)), sin_(table.sin.unsqueeze(1)) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override { return {turned(inputs[0], sin_)}; }
  // A rotation's transpose turns the other way.
  std::vector<at::Tensor> backward(at::TensorList grads) override { return {turned(grads[0], -sin_)}; }

  const char* name() const override { return "rope"; }
  Work work(Pass pass, at::TensorList taken, at::TensorList given) const override {
    return {0, Op::work(pass, taken, given).bytes + bytes_of({cos_, sin_})};
  }

 private:
  at::Tensor turned(const at::Tensor& x, const at::Tensor& sin) const {
    at::Tensor out = at::empty(x.sizes(), x.options());
    rotate(x.narrow(1, 0, n_rotated_), cos_, sin, out.narrow(1, 0, n_rotated_));
    const int64_t rest = x.size(1) - n_rotated_;
    out.narrow(1, n_rotated_, rest).copy_(x.narrow(1, n_rotated_, rest));
    return out;
  }

  int64_t n_rotated_;
  at::Tensor cos_, sin_;  // the table is shared by all layers: not an activation of this op
};

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& model, const std::string& type, int64_t length) {
  const bool own_base = type == "sliding" && model.rope_theta_sliding != 0;
  double theta = own_base ? model.rope_theta_sliding : model.rope_theta;
  if (model.rope_scaling == "dynamic" && !own_base) theta = dynamic_theta(model, theta, length);
  RopeFrequencies frequencies;
  for (int64_t i = 0; i < model.rope_dim; i += 2)
    frequencies.inverse.push_back(std::pow(theta, -double(i) / double(model.rope_dim)));
  if (own_base) return frequencies;
  if (model.rope_scaling == "linear")
    for (double& f : frequencies.inverse) f /= model.rope_factor;
  if (model.rope_scaling == "llama3") scale_llama3(model, &frequencies.inverse);
  if (model.rope_scaling == "yarn") scale_yarn(model, theta, &frequencies);
  if (model.rope_scaling == "longrope") scale_longrope(model, length, &frequencies);
  return frequencies;
}

RopeTable rope_table(const RopeFrequencies& frequencies, const at::Tensor& positions, at::ScalarType dtype) {
  const at::Tensor angles =
      at::outer(positions.to(at::kDouble), at::tensor(frequencies.inverse, at::kDouble));
  return {(angles.cos() * frequencies.scale).to(dtype), (angles.sin() * frequencies.scale).to(dtype)};
}

RopeTable rope_table(const ModelConfig& model, const std::string& type, const at::Tensor& positions,
                     const std::vector<int64_t>& cu_seqlens, at::ScalarType dtype) {
  if (!depends_on_length(model)) return rope_table(rope_frequencies(model, type), positions, dtype);
  std::vector<at::Tensor> cos, sin;
  for (size_t d = 0; d + 1 < cu_seqlens.size(); ++d) {
    const at::Tensor document = positions.slice(0, cu_seqlens[d], cu_seqlens[d + 1]);
    if (document.size(0) == 0) continue;
    const int64_t length = document[-1].item<int64_t>() + 1;
    const RopeTable table = rope_table(rope_frequencies(model, type, length), document, dtype);
    cos.push_back(table.cos), sin.push_back(table.sin);
  }
  return {at::cat(cos), at::cat(sin)};
}

at::Tensor rope(const at::Tensor& qkv, int64_t n_rotated, const RopeTable& table) {
  return apply(std::make_shared<Rope>(n_rotated, table), {qkv})[0];
}

}  // namespace weft
