// From [optim]'s rules on names to what each parameter knows of its updates.
#pragma once

#include <vector>

#include "weft/base/config.h"
#include "weft/param/param.h"

namespace weft {

/// Sets every param's UpdateRule from decay, lr_multipliers and freeze. Throws one Error listing each pattern
/// that matches no parameter; also if nothing is left to train.
void set_update_rules(const OptimConfig& optim, const std::vector<Param*>& params);

}  // namespace weft
