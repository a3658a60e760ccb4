#include "weft/parity/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/nn/decoder.h"
#include "weft/report/metrics.h"

namespace weft {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The model that a config describes, on this rank alone.
Decoder whole_decoder(const Config& config) {
  return Decoder(config.model, dtypes_of(config.precision).params);
}

void enter_weights(const Decoder& decoder, const std::string& prefix,
                   std::map<std::string, at::Tensor>* weights) {
  for (const Param* param : decoder.params())
    (*weights)[prefix + param->name()] = param->weight().detach().clone();
}

double largest(const at::Tensor& x) { return x.numel() == 0 ? 0 : x.abs().max().item<double>(); }

/// NaN where both are is no difference; where one is, it is the largest there can be.
double relative(double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (std::isnan(a) || std::isnan(b)) return kInfinity;
  return a == b ? 0 : std::abs(a - b) / std::abs(a);
}

double worst_step(const TrainingCurve& reference, const TrainingCurve& found, const std::string& metric) {
  const auto &a = reference.metrics.at(metric), &b = found.metrics.at(metric);
  if (a.size() != b.size()) return kInfinity;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, relative(a[i], b[i]));
  return worst;
}

}  // namespace

TrainingCurve read_curve(const Config& config, Env& env) {
  TrainingCurve curve;
  MetricsReader reader(env, config.log.run_dir);
  reader.poll();
  const Metrics& metrics = reader.metrics();
  if (int64_t(metrics.step.size()) != config.train.steps)
    fail("{}: {} steps are in metrics.jsonl, expected {}", config.log.run_dir, metrics.step.size(),
         config.train.steps);
  for (const char* name : {"loss", "grad_norm", "valid_loss"}) {
    const auto column = metrics.columns.find(name);
    curve.metrics[name] = column == metrics.columns.end() ? std::vector<double>{} : column->second;
  }
  const std::string dir = config.log.run_dir + "/checkpoints/" + step_name(config.train.steps);
  const Checkpoint checkpoint = open_checkpoint(env, dir);
  const Decoder decoder = whole_decoder(config);
  load_weights(env, checkpoint, decoder.params());
  enter_weights(decoder, "", &curve.weights);
  if (checkpoint.tensors.contains(kAverage)) {
    load_weights(env, checkpoint, decoder.params(), kAverage);
    enter_weights(decoder, std::string(kAverage) + ".", &curve.weights);
  }
  return curve;
}

std::map<std::string, at::Tensor> initial_weights(const Config& config) {
  Decoder decoder = whole_decoder(config);
  decoder.initialise(uint64_t(config.train.seed));
  std::map<std::string, at::Tensor> weights;
  enter_weights(decoder, "", &weights);
  enter_weights(decoder, std::string(kAverage) + ".", &weights);
  return weights;
}

double Deviation::worst() const { return std::max({loss, grad_norm, weights}); }

Deviation compare(const TrainingCurve& reference, const TrainingCurve& found,
                  const std::map<std::string, at::Tensor>& initial, const Config& config) {
  Deviation deviation;
  deviation.loss = std::max(worst_step(reference, found, "loss"), worst_step(reference, found, "valid_loss"));
  deviation.grad_norm = worst_step(reference, found, "grad_norm");
  const double step_lengths = config.optim.lr * double(config.train.steps);
  for (const auto& [name, a] : reference.weights) {
    const auto other = found.weights.find(name);
    const double moved = largest(a - initial.at(name));
    const double scale = moved > 1e-6 * step_lengths ? moved : step_lengths;
    double apart = other == found.weights.end() ? kInfinity : largest(a - other->second) / scale;
    if (std::isnan(apart)) apart = kInfinity;
    if (apart > deviation.weights || deviation.tensor.empty())
      deviation.weights = apart, deviation.tensor = name;
  }
  return deviation;
}

}  // namespace weft
