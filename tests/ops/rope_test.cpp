#include "weft/ops/rope.h"

#include <cmath>
#include <numbers>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/ops/gradcheck.h"

namespace weft::test {
namespace {

// Dims i and i + half as one complex number, turned by multiplication with scale * exp(i angle).
OpCase rope_case(const std::vector<int64_t>& positions, int64_t heads, int64_t n_rotated, int64_t head_dim,
                 double scale = 1, int64_t still = 0) {
  const int64_t rope_dim = head_dim - still;
  RopeFrequencies frequencies;
  for (int64_t i = 0; i < rope_dim / 2; ++i)
    frequencies.inverse.push_back(std::pow(100.0, -2.0 * double(i) / double(rope_dim)));
  frequencies.scale = scale;
  const at::Tensor position = at::tensor(positions);

  OpCase c;
  c.inputs = {normals({position.size(0), heads, head_dim}, 1)};
  c.op = [=](const Tensors& x, const std::vector<Param*>&) {
    return Tensors{rope(x[0], n_rotated, rope_table(frequencies, position, x[0].scalar_type()))};
  };
  c.reference = [=](const Tensors& x, const Tensors&) {
    const at::Tensor angle =
        position.to(at::kDouble).unsqueeze(1) * at::tensor(frequencies.inverse, at::kDouble);
    const at::Tensor turn = at::polar(at::full_like(angle, scale), angle).unsqueeze(1);
    const auto heads_of = x[0].split_with_sizes({n_rotated, heads - n_rotated}, 1);
    const auto halves = heads_of[0].narrow(2, 0, rope_dim).chunk(2, 2);
    const at::Tensor turned = at::complex(halves[0], halves[1]) * turn;
    const at::Tensor rest = heads_of[0].narrow(2, rope_dim, still);
    return Tensors{at::cat({at::cat({at::real(turned), at::imag(turned), rest}, 2), heads_of[1]}, 1)};
  };
  return c;
}

ModelConfig model(double theta, int64_t head_dim, const std::string& scaling = "none", double factor = 1) {
  ModelConfig m;
  m.rope_theta = theta;
  m.head_dim = m.rope_dim = head_dim;
  m.rope_scaling = scaling;
  m.rope_factor = factor;
  return m;
}

void expect_frequencies(const ModelConfig& m, const std::vector<double>& expected, double tolerance) {
  const RopeFrequencies got = rope_frequencies(m, "full");
  ASSERT_EQ(got.inverse.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(got.inverse[i] / expected[i], 1, tolerance) << m.rope_scaling << " dim " << i;
}

// The default frequencies, written another way.
std::vector<double> plain(double theta, int64_t head_dim) {
  std::vector<double> f;
  for (int64_t i = 0; i < head_dim / 2; ++i)
    f.push_back(std::exp(-std::log(theta) * 2.0 * double(i) / double(head_dim)));
  return f;
}

TEST(Rope, MatchesReference) {
  check_op("q and k turn, v does not", rope_case({0, 1, 2, 3, 0, 1, 2}, 8, 6, 8));
  check_op("scaled, far positions", rope_case({100000, 7, 131071}, 3, 2, 4, 1.25));
  check_op("head_dim 2, one token", rope_case({5}, 3, 2, 2));
  check_op("all heads turn", rope_case({0, 1, 2, 3, 4}, 2, 2, 6));
  check_op("the first 4 of 7 dims turn", rope_case({0, 1, 2, 3, 4}, 4, 3, 7, 1.5, 3));
}

TEST(Rope, ScoresDependOnTheDistanceOnly) {
  const RopeFrequencies f = rope_frequencies(model(10000, 8), "full");
  const at::Tensor x = normals({1, 2, 8}, 1);
  const auto score = [&](int64_t q_position, int64_t k_position) {
    const auto at_position = [&](int64_t p) {
      return rope(x, 2, rope_table(f, at::tensor({p}), at::kDouble))[0];
    };
    return at_position(q_position)[0].dot(at_position(k_position)[1]).item<double>();
  };
  EXPECT_NEAR(score(9, 4), score(1005, 1000), 1e-12);
  EXPECT_GT(std::abs(score(9, 4) - score(9, 5)), 1e-3);
}

TEST(RopeTable, IsComputedInFp64AndRounded) {
  // Angles of 131071 computed in fp32 would be off by up to 4e-3; rounding cos and sin costs 6e-8.
  const RopeFrequencies f = rope_frequencies(model(10000, 8), "full");
  const RopeTable table = rope_table(f, at::tensor({131071}, at::kLong), at::kFloat);
  EXPECT_EQ(table.cos.scalar_type(), at::kFloat);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(table.cos[0][i].item<double>(), std::cos(131071 * f.inverse[size_t(i)]), 6e-8);
    EXPECT_NEAR(table.sin[0][i].item<double>(), std::sin(131071 * f.inverse[size_t(i)]), 6e-8);
  }
}

TEST(RopeFrequencies, DefaultAndLinear) {
  expect_frequencies(model(10000, 8), {1, 0.1, 0.01, 0.001}, 1e-15);
  expect_frequencies(model(500000, 2), {1}, 1e-15);
  expect_frequencies(model(10000, 8, "linear", 8), {0.125, 0.0125, 0.00125, 0.000125}, 1e-15);
  EXPECT_EQ(rope_frequencies(model(10000, 8, "linear", 8), "full").scale, 1);
}

TEST(RopeFrequencies, SlidingLayersWithTheirOwnBaseAreNotScaled) {
  ModelConfig m = model(1000000, 8, "linear", 8);
  m.rope_theta_sliding = 10000;
  const std::vector<double> own = plain(10000, 8), shared = plain(1000000, 8);
  const RopeFrequencies sliding = rope_frequencies(m, "sliding"), full = rope_frequencies(m, "full");
  m.rope_theta_sliding = 0;
  const RopeFrequencies as_full = rope_frequencies(m, "sliding");
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(sliding.inverse[i] / own[i], 1, 1e-14);
    EXPECT_NEAR(full.inverse[i] / (shared[i] / 8), 1, 1e-14);
    EXPECT_EQ(as_full.inverse[i], full.inverse[i]);
  }
}

// From the wavelength, as the Llama 3.1 code does: kept below original / high, slowed above original / low.
TEST(RopeFrequencies, Llama3MatchesItsFormula) {
  ModelConfig m = model(500000, 64, "llama3", 8);
  m.rope_original_seq_len = 8192;
  m.rope_low_freq_factor = 1;
  m.rope_high_freq_factor = 4;
  std::vector<double> expected = plain(500000, 64);
  int kept = 0, slowed = 0, between = 0;
  for (double& f : expected) {
    const double turns = 8192 * f / (2 * std::numbers::pi);  // within the original length
    if (turns > 4) {
      ++kept;
    } else if (turns < 1) {
      f /= 8, ++slowed;
    } else {
      f *= 1.0 / 8 + (1 - 1.0 / 8) * (turns - 1) / 3, ++between;
    }
  }
  EXPECT_TRUE(kept > 0 && slowed > 0 && between > 0);
  expect_frequencies(m, expected, 1e-14);
  EXPECT_EQ(rope_frequencies(m, "full").scale, 1);
}

// HuggingFace transformers 5.24, fp32.
TEST(RopeFrequencies, Llama3MatchesHuggingFace) {
  ModelConfig m = model(500000, 32, "llama3", 8);
  m.rope_original_seq_len = 8192;
  expect_frequencies(
      m,
      {1.0, 0.44036662578582764, 0.193922758102417, 0.08539710193872452, 0.03760603070259094,
       0.016560440883040428, 0.00729266507551074, 0.0032114461064338684, 0.0005248460220173001,
       7.784655463183299e-05, 3.428102354519069e-05, 1.5096217794052791e-05, 6.647869668086059e-06,
       2.927499735960737e-06, 1.289173155782919e-06, 5.677088097399974e-07},
      1e-6);
  m = model(10000, 16, "llama3", 32);
  m.rope_original_seq_len = 64;
  expect_frequencies(
      m,
      {1.0, 0.23668710887432098, 0.00372535502538085, 0.0009882118320092559, 0.0003124999930150807,
       9.882118320092559e-05, 3.125000148429535e-05, 9.882118320092559e-06},
      1e-6);
}

ModelConfig yarn(double theta, int64_t head_dim, double factor, int64_t original) {
  ModelConfig m = model(theta, head_dim, "yarn", factor);
  m.rope_original_seq_len = original;
  resolve(&m);
  return m;
}

// Section 3.2 of the paper: a dim that turns r times within the original length is kept by the share a ramp
// gives it; the ramp is over the dim's index, between those of beta_fast and beta_slow turns.
TEST(RopeFrequencies, YarnMatchesItsFormula) {
  for (bool truncate : {true, false}) {
    ModelConfig m = yarn(10000, 64, 16, 2048);
    m.rope_truncate = truncate;
    const auto index =
        [&](double turns) {  // of the dim that turns so often: 2048 theta^(-2i/64) = 2 pi turns
          return 32 * std::log(2048 / (2 * std::numbers::pi * turns)) / std::log(10000.0);
        };
    double low = index(32), high = index(1);
    if (truncate) low = std::floor(low), high = std::ceil(high);
    std::vector<double> expected = plain(10000, 64);
    for (size_t i = 0; i < expected.size(); ++i) {
      const double interpolated = std::min(1.0, std::max(0.0, (double(i) - low) / (high - low)));
      expected[i] *= 1 - interpolated + interpolated / 16;
    }
    expect_frequencies(m, expected, 1e-13);
    EXPECT_NEAR(rope_frequencies(m, "full").scale, 0.1 * std::log(16.0) + 1, 1e-15);
  }
}

// HuggingFace transformers 5.24, fp32.
TEST(RopeFrequencies, YarnMatchesHuggingFace) {
  ModelConfig m = yarn(1000000, 32, 4, 32768);
  expect_frequencies(
      m,
      {1.0, 0.4216965138912201, 0.17782793939113617, 0.07498941570520401, 0.03162277862429619,
       0.01333521492779255, 0.00477990135550499, 0.001659961650148034, 0.0005499999970197678,
       0.00016867858357727528, 4.4456985051510856e-05, 1.8747356079984456e-05, 7.905693564680405e-06,
       3.3338035336782923e-06, 1.405853367941745e-06, 5.928434347879374e-07},
      1e-6);
  EXPECT_NEAR(rope_frequencies(m, "full").scale, 1.138629436111989, 1e-15);

  m = yarn(150000, 32, 32, 4096);
  m.rope_truncate = false;
  expect_frequencies(
      m,
      {1.0, 0.4747820496559143, 0.22541800141334534, 0.1070244163274765, 0.05081327259540558,
       0.019335001707077026, 0.006794959306716919, 0.002093792660161853, 0.0004564839182421565,
       3.830881178146228e-05, 1.818833698052913e-05, 8.635495760245249e-06, 4.099978468730114e-06,
       1.9465962850517826e-06, 9.242089618055616e-07, 4.38797854940276e-07},
      1e-6);
  EXPECT_NEAR(rope_frequencies(m, "full").scale, 1.3465735902799727, 1e-15);

  m = yarn(10000, 16, 4, 128);
  m.rope_beta_fast = 16;
  m.rope_beta_slow = 2;
  m.rope_attention_factor = 1.25;
  expect_frequencies(
      m,
      {1.0, 0.23717081546783447, 0.04999999701976776, 0.007905694656074047, 0.0024999999441206455,
       0.0007905694656074047, 0.0002500000118743628, 7.905694656074047e-05},
      1e-6);
  EXPECT_EQ(rope_frequencies(m, "full").scale, 1.25);
}

// The base for which the slowest frequency of a document of L tokens is 1 / (factor L / original - factor +
// 1) of the unscaled one.
TEST(RopeFrequencies, DynamicInterpolatesTheSlowestDim) {
  ModelConfig m = model(10000, 12, "dynamic", 3);
  m.rope_original_seq_len = 16;
  const std::vector<double> unscaled = plain(10000, 12);
  for (const int64_t length : {1, 16, 17, 40}) {
    const RopeFrequencies got = rope_frequencies(m, "full", length);
    const double stretch = length <= 16 ? 1 : 3.0 * double(length) / 16 - 2;
    EXPECT_NEAR(got.inverse[5] * stretch / unscaled[5], 1, 1e-13) << length;
    EXPECT_NEAR(got.inverse[1], std::pow(got.inverse[5], 0.2), 1e-15) << "a geometric row";
    EXPECT_EQ(got.inverse[0], 1);
  }
}

TEST(RopeFrequencies, LongropeDividesByTheFactorsOfTheDocumentsLength) {
  ModelConfig m = model(10000, 8, "longrope", 4);
  m.rope_original_seq_len = 16, m.rope_short_factors = {1, 1.5, 2, 3}, m.rope_long_factors = {2, 4, 8, 16};
  m.rope_attention_factor = 0;
  resolve(&m);
  for (const auto& [length, factors] :
       {std::pair{int64_t(16), m.rope_short_factors}, {17, m.rope_long_factors}}) {
    const RopeFrequencies got = rope_frequencies(m, "full", length);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got.inverse[i] * factors[i] / plain(10000, 8)[i], 1, 1e-14);
    EXPECT_NEAR(got.scale, std::sqrt(1.5), 1e-15);  // 1 + ln 4 / ln 16
  }
}

// Each document of a flat micro-batch turns by its own length.
TEST(RopeTable, IsOfEachDocumentsLength) {
  ModelConfig m = model(10000, 8, "dynamic", 3);
  m.rope_original_seq_len = 4;
  const at::Tensor positions = at::cat({at::arange(3), at::arange(9), at::arange(5)});
  const RopeTable table = rope_table(m, "full", positions, {0, 3, 12, 12, 17}, at::kDouble);
  for (const auto& [begin, length] : {std::pair{0, 3}, {3, 9}, {12, 5}}) {
    const RopeTable alone =
        rope_table(rope_frequencies(m, "full", length), at::arange(int64_t(length)), at::kDouble);
    EXPECT_TRUE(at::equal(table.cos.narrow(0, begin, length), alone.cos));
    EXPECT_TRUE(at::equal(table.sin.narrow(0, begin, length), alone.sin));
  }
}

}  // namespace
}  // namespace weft::test
