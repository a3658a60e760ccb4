#include "weft/train/evaluation.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/comm/dropped_sum.h"
#include "weft/comm/together.h"

namespace weft {
std::string to_string(const Evaluation& evaluation) {
  std::string text = fmt::format("validation loss {:.4f}", evaluation.loss);
  std::vector<std::string> parts;
  for (const auto& [name, loss] : evaluation.sources) parts.push_back(fmt::format("{} {:.4f}", name, loss));
  if (!parts.empty()) text += fmt::format("  ({})", fmt::join(parts, ", "));
  if (evaluation.ema_loss) text += fmt::format("  with EMA weights {:.4f}", *evaluation.ema_loss);
  return text;
}

Evaluator::Evaluator(const Config& config, std::vector<ValidationSource> sources, const BatchOptions& options,
                     MeshGroups& groups)
    : sources_(std::move(sources)),
      options_(options),
      eval_sequences_(config.train.eval_sequences),
      loss_chunk_(config.memory.loss_chunk),
      groups_(groups) {}

int64_t Evaluator::available() const {
  int64_t sum = 0;
  for (const ValidationSource& source : sources_) sum += source.samples->size();
  return sum;
}

int64_t Evaluator::sequences(const SampleSource& source) const {
  return eval_sequences_ > 0 ? std::min(eval_sequences_, source.size()) : source.size();
}

Evaluator::Sum Evaluator::loss(const SampleSource& source, Decoder& decoder) const {
  const int64_t count = sequences(source);
  const int64_t at_once = options_.micro_batch * options_.data_ranks;
  double loss = 0, targets = 0;
  for (int64_t done = 0; done < count; done += at_once) {
    std::vector<MicroBatch> batches;
    together(groups_.all(),
             [&] { batches = make_micro_batches(source, done, std::min(at_once, count - done), options_); });
    for (const MicroBatch& batch : batches) loss += decoder.loss(batch, 1.0, loss_chunk_);
    targets += double(count_targets(batches));
  }
  if (dropped("validation loss over data ranks")) return {loss, targets};
  const std::vector<double> sums = all_reduce(groups_.get(kDataAxes), {loss, targets});
  return {sums[0], sums[1]};
}

double Evaluator::loss(Decoder& decoder, std::vector<std::pair<std::string, double>>* of_sources) const {
  Sum all;
  for (const ValidationSource& source : sources_) {
    const Sum sum = loss(*source.samples, decoder);
    all.loss += sum.loss, all.targets += sum.targets;
    if (of_sources && sources_.size() > 1) of_sources->emplace_back(source.name, sum.mean());
  }
  return all.mean();
}

Evaluation Evaluator::evaluate(Decoder& decoder, WeightAverage* average) const {
  Evaluation result;
  result.loss = loss(decoder, &result.sources);
  if (average) {
    const auto swap = [&] {
      average->swap();
      decoder.data_parallel().publish();
    };
    swap();
    try {
      result.ema_loss = loss(decoder, nullptr);
    } catch (const CommError&) {
      throw;  // the others can publish nothing any more
    } catch (const Error&) {
      swap();
      throw;
    }
    swap();
  }
  return result;
}

std::vector<std::vector<int64_t>> Evaluator::windows() const {
  std::vector<std::vector<int64_t>> windows;
  for (const ValidationSource& source : sources_) {
    for (int64_t i = 0; i < sequences(*source.samples); ++i) {
      windows.emplace_back(size_t(options_.seq_len) + 1);
      source.samples->read(i, windows.back());
    }
  }
  return windows;
}

}  // namespace weft
