#include "weft/optim/update_rule.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/name_pattern.h"

namespace weft {
namespace {

/// Calls `set` with the rule of each param whose name matches; one that matches none is a problem of `key`.
template <class Set>
void for_matches(const NamePattern& pattern, const char* key, const std::vector<Param*>& params,
                 std::vector<std::string>* problems, Set set) {
  bool any = false;
  for (Param* param : params) {
    if (!pattern.matches(param->name())) continue;
    UpdateRule rule = param->update_rule();
    set(&rule);
    param->set_update_rule(rule);
    any = true;
  }
  if (!any) problems->push_back(fmt::format("{}: \"{}\" matches no parameter", key, pattern.text()));
}

}  // namespace

void set_update_rules(const OptimConfig& optim, const std::vector<Param*>& params) {
  std::vector<std::string> problems;
  for (Param* param : params) {
    const bool decays = optim.decay == "all" || (optim.decay == "matrices" && param->shape().size() >= 2);
    param->set_update_rule({.decays = decays});
  }
  if (optim.decay == "regex")
    for_matches(NamePattern(optim.decay_regex), "optim.decay_regex", params, &problems,
                [](UpdateRule* rule) { rule->decays = true; });
  for (const std::string& text : optim.lr_multipliers) {
    const LrMultiplier multiplier = parse_lr_multiplier(text);
    for_matches(multiplier.pattern, "optim.lr_multipliers", params, &problems,
                [&](UpdateRule* rule) { rule->lr_multiplier = multiplier.factor; });
  }
  for (const std::string& text : optim.freeze)
    for_matches(NamePattern(text), "optim.freeze", params, &problems,
                [](UpdateRule* rule) { rule->trainable = false; });
  if (!problems.empty())
    fail("{}\nNames look like {} and {}.", fmt::join(problems, "\n"), params.front()->name(),
         params.back()->name());
  if (std::ranges::none_of(params, &Param::trainable))
    fail("optim.freeze = [\"{}\"] matches every parameter: nothing is left to train",
         fmt::join(optim.freeze, "\", \""));
}

}  // namespace weft
