#include "weft/optim/update_rule.h"

#include <memory>

#include <gtest/gtest.h>

#include "weft/param/param_unit.h"

#include "tests/base/error_of.h"

namespace weft {
namespace {

class UpdateRules : public testing::Test {
 protected:
  UpdateRules() : unit_("layer", at::kDouble) {
    for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
             {"a.weight", {3, 5}}, {"a.bias", {3}}, {"b.weight", {7}}, {"c.weight", {2, 2}}}) {
      ParamSpec spec;
      spec.name = name, spec.shape = shape;
      params_.push_back(&unit_.add(spec));
    }
  }

  // The names of the params whose rule has the property.
  template <class Property>
  std::string names(const OptimConfig& optim, Property property) {
    set_update_rules(optim, params_);
    std::string text;
    for (const Param* param : params_)
      if (property(param->update_rule())) text += param->name() + " ";
    return text;
  }

  ParamUnit unit_;
  std::vector<Param*> params_;
};

TEST_F(UpdateRules, DecayWhatTheKeySays) {
  const auto decaying = [&](const std::string& rule, const std::string& regex = "") {
    OptimConfig optim;
    optim.decay = rule, optim.decay_regex = regex;
    return names(optim, [](const UpdateRule& r) { return r.decays; });
  };
  EXPECT_EQ(decaying("matrices"), "a.weight c.weight ");
  EXPECT_EQ(decaying("all"), "a.weight a.bias b.weight c.weight ");
  EXPECT_EQ(decaying("regex", "bias|^c"), "a.bias c.weight ");
}

TEST_F(UpdateRules, TheLastMultiplierThatMatchesCounts) {
  OptimConfig optim;
  optim.lr_multipliers = {"weight = 0.5", "^a=3"};
  const auto with = [&](double factor) {
    return names(optim, [&](const UpdateRule& r) { return r.lr_multiplier == factor; });
  };
  EXPECT_EQ(with(0.5), "b.weight c.weight ");
  EXPECT_EQ(with(3), "a.weight a.bias ");
  optim.lr_multipliers = {};
  EXPECT_EQ(with(1), "a.weight a.bias b.weight c.weight ") << "earlier rules are forgotten";
}

TEST_F(UpdateRules, FreezeWhatMatchesAny) {
  OptimConfig optim;
  optim.freeze = {"bias", "^b"};
  EXPECT_EQ(names(optim, [](const UpdateRule& r) { return !r.trainable; }), "a.bias b.weight ");
}

TEST_F(UpdateRules, WhatMatchesNothingIsAnError) {
  OptimConfig optim;
  optim.decay = "regex", optim.decay_regex = "nothing", optim.freeze = {"bias", "zzz"},
  optim.lr_multipliers = {"q = 2"};
  EXPECT_EQ(error_of([&] { set_update_rules(optim, params_); }),
            "optim.decay_regex: \"nothing\" matches no parameter\n"
            "optim.lr_multipliers: \"q\" matches no parameter\n"
            "optim.freeze: \"zzz\" matches no parameter\n"
            "Names look like a.weight and c.weight.");
  optim = {};
  optim.freeze = {"weight", "bias"};
  EXPECT_EQ(error_of([&] { set_update_rules(optim, params_); }),
            "optim.freeze = [\"weight\", \"bias\"] matches every parameter: nothing is left to train");
}

}  // namespace
}  // namespace weft
