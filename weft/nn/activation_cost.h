// What a decoder layer keeps for its backward, by formula (Korthikanti et al., "Reducing Activation
// Recomputation", 2022, section 4). Inside the tensor-parallel regions it is divided by tp, and with sequence
// parallelism between them, too.
#pragma once

#include <map>
#include <string>

#include "weft/base/config.h"
#include "weft/param/param.h"

namespace weft {

/// Elements per token of the micro-batch, by op. What two ops keep, the one that runs first counts; the
/// layer's input is counted, its output is not.
std::map<std::string, double> kept_per_token(const ModelConfig& model, const TensorPlace& place);

}  // namespace weft
