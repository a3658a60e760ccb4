#include "weft/base/config.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/config_schema.h"
#include "weft/base/error.h"

#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    home_ = std::filesystem::current_path();
    dir_ = std::filesystem::temp_directory_path() / fmt::format("weft-config-{}", getpid());
    std::filesystem::create_directories(dir_);
    std::filesystem::current_path(dir_);  // so that reports name the file as "demo.toml"
  }
  void TearDown() override {
    std::filesystem::current_path(home_);
    std::filesystem::remove_all(dir_);
  }

  Config load(const std::string& text, const std::vector<std::string>& overrides = {}) {
    std::ofstream("demo.toml", std::ios::binary) << text;
    warnings_.clear();
    return load_config("demo.toml", overrides, &warnings_);
  }

  /// The report for a config that must be refused.
  std::string report(const std::string& text, const std::vector<std::string>& overrides = {}) {
    try {
      load(text, overrides);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  std::filesystem::path home_, dir_;
  std::vector<std::string> warnings_;
};

// A line so that a file holds something.
const char* const kSome = "[train]\nsteps = 10\n";

TEST_F(ConfigTest, ReadsEveryKindOfValue) {
  const Config config = load(R"([model]
dim = 128
head_dim = 32
n_heads = 8
tie_embeddings = false
rope_theta = 500_000      # an integer for a number
layer_types = ["sliding", "full"]
sliding_window = 64
rope_layers = [true, true, false]
[optim]
lr = 3e-4
schedule = "wsd"
[train]
steps = 1e4               # a float for an integer
[data]
train = "corpus"          # a list of one
)");
  EXPECT_EQ(config.model.dim, 128);
  EXPECT_EQ(config.model.head_dim, 32);
  EXPECT_FALSE(config.model.tie_embeddings);
  EXPECT_EQ(config.model.rope_theta, 500000);
  EXPECT_THAT(config.model.layer_types, ElementsAre("sliding", "full"));
  EXPECT_THAT(config.model.rope_layers, ElementsAre(true, true, false));
  EXPECT_EQ(config.optim.lr, 3e-4);
  EXPECT_EQ(config.optim.schedule, "wsd");
  EXPECT_EQ(config.train.steps, 10000);
  EXPECT_THAT(config.data.train, ElementsAre("corpus"));
  EXPECT_EQ(config.train.micro_batch, 4);  // untouched: the default
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(ConfigTest, OverridesWinAndLaterOnesWinOverThem) {
  const Config config =
      load("[model]\ndim = 128\n",
           {"model.dim=256", "model.dim = 512", "optim.schedule=linear", "optim.lr=1", "log.run_dir=2024",
            "data.train=a,b", "model.layer_types=[sliding, full]", "model.sliding_window=8",
            "data.valid=[\"v 1\", 'v2']", "log.plot=false", "optim.name=\"adamw\"", "data.tokenizer="});
  EXPECT_EQ(config.model.dim, 512);
  EXPECT_EQ(config.optim.schedule, "linear");
  EXPECT_EQ(config.optim.lr, 1);
  EXPECT_EQ(config.log.run_dir, "2024");
  EXPECT_THAT(config.data.train, ElementsAre("a,b"));
  EXPECT_THAT(config.model.layer_types, ElementsAre("sliding", "full"));
  EXPECT_THAT(config.data.valid, ElementsAre("v 1", "v2"));
  EXPECT_FALSE(config.log.plot);
  EXPECT_EQ(config.data.tokenizer, "");
  EXPECT_THAT(load(kSome, {"data.train=[]"}).data.train, IsEmpty());
}

TEST_F(ConfigTest, ReportsAllProblemsInTheOrderOfTheFile) {
  EXPECT_EQ(
      report(R"(dim = 3
[optim]
schedule = "cosin"
lr = "fast"
clip_norm = nan
[model]
n_layer = 3
seq_len = 4
dim = [1, 2]
tie_embeddings = 1
layer_types = ["full", "slide"]
norm_eps = 0
n_layers = 2.5
[trian]
steps = 5
[train]
steps = 0
threads = 1979-05-27
[data]
seed = -1
train = [1]
)",
             {"model.n_heads=many", "model.head=3", "modle.dim=4", "dim=4", "nonsense", "log.plot=yes",
              "train.seq_len=8\n[model]\ndim = 9"}),
      "23 problems in the config:\n"
      "  demo.toml:1: unknown key dim (did you mean model.dim?); keys stand in a section, such as [model]\n"
      "  demo.toml:3: optim.schedule = \"cosin\": expected \"cosine\", \"linear\", \"wsd\" or \"constant\" "
      "(did you mean \"cosine\"?)\n"
      "  demo.toml:4: optim.lr = \"fast\": expected a number in (0, 1]\n"
      "  demo.toml:5: optim.clip_norm = nan: expected a number in [0, 1e+06]\n"
      "  demo.toml:7: unknown key model.n_layer (did you mean n_layers?)\n"
      "  demo.toml:8: unknown key model.seq_len (did you mean train.seq_len?)\n"
      "  demo.toml:9: model.dim = [1, 2]: expected an integer in [1, 1048576]\n"
      "  demo.toml:10: model.tie_embeddings = 1: expected true or false\n"
      "  demo.toml:11: model.layer_types = [\"full\", \"slide\"]: expected a list of \"full\" or "
      "\"sliding\"\n"
      "  demo.toml:12: model.norm_eps = 0: expected a number in (0, 1]\n"
      "  demo.toml:13: model.n_layers = 2.5: expected an integer in [1, 4096]\n"
      "  demo.toml:14: unknown section [trian] (did you mean [train]?)\n"
      "  demo.toml:17: train.steps = 0: expected an integer in [1, 1000000000000]\n"
      "  demo.toml:18: train.threads = 1979-05-27: expected an integer in [0, 4096]\n"
      "  demo.toml:20: data.seed = -1: expected an integer in [0, 1000000000000000]\n"
      "  demo.toml:21: data.train = [1]: expected a list of text in quotes\n"
      "  --set model.n_heads=many: expected an integer in [1, 65536]\n"
      "  --set model.head=3: unknown key model.head\n"
      "  --set modle.dim=4: unknown section [modle] (did you mean [model]?)\n"
      "  --set dim=4: unknown key dim (did you mean model.dim?)\n"
      "  --set nonsense: expected section.key=value, such as model.dim=512\n"
      "  --set log.plot=yes: expected true or false\n"
      "  --set train.seq_len=8\n[model]\ndim = 9: expected an integer in [1, 16777216]");
}

TEST_F(ConfigTest, ReportsASingleProblemOnOneLine) {
  EXPECT_EQ(report("model = 3\n"), "demo.toml:1: model = 3: expected a section [model]");
  EXPECT_EQ(report("[[model]]\ndim = 3\n"), "demo.toml:1: model = [{...}]: expected a section [model]");
  EXPECT_EQ(report("[model.dim]\nx = 3\n"),
            "demo.toml:1: model.dim = {...}: expected an integer in [1, 1048576]");
  EXPECT_EQ(
      report("[zoo]\n"),
      "demo.toml:1: unknown section [zoo]; the sections are model, data, train, optim, parallel, comm, precision, memory, "
      "checkpoint, log");
  EXPECT_EQ(report("[optim]\nlr = inf\n"), "demo.toml:2: optim.lr = inf: expected a number in (0, 1]");
  EXPECT_EQ(report("[optim]\nlr = 1.0000001\n"),
            "demo.toml:2: optim.lr = 1.0000001: expected a number in (0, 1]");
  EXPECT_EQ(report("[train]\nsteps = 1e300\n"),
            "demo.toml:2: train.steps = 1e+300: expected an integer in [1, 1000000000000]");
  EXPECT_EQ(report("[model]\nrope_layers = []\n"),
            "demo.toml:2: model.rope_layers = []: expected a list of true or false");
  EXPECT_EQ(report("[data]\ntokenizer = ['" + std::string(200, 'x') + "']\n"),
            "demo.toml:2: data.tokenizer = [\"" + std::string(58, 'x') + "...: expected text in quotes");
  EXPECT_EQ(report(kSome, {"log.run_dir=\xff"}), "--set log.run_dir=\xff: expected text in quotes");
}

TEST_F(ConfigTest, ReportsWhatIsNotToml) {
  EXPECT_THAT(report("[model]\ndim = 3\ndim = 4\n"), HasSubstr("demo.toml:3: not valid TOML: "));
  EXPECT_THAT(report("[model]\ndim = 3\n[model]\nn_heads = 1\n"), HasSubstr("demo.toml:3: not valid TOML: "));
  EXPECT_THAT(report("[model\ndim = 3\n"), HasSubstr("demo.toml:1: not valid TOML: "));
  EXPECT_THAT(report("[model]\ndim = 99999999999999999999\n"), HasSubstr("demo.toml:2: not valid TOML: "));
  EXPECT_THAT(report(" \n"), HasSubstr("demo.toml: the file is empty"));
  std::string deep = "a";
  for (int i = 0; i < 400000; ++i) deep += ".a";
  EXPECT_THAT(report("[model]\n" + deep + " = 1\n"), HasSubstr("demo.toml: more than 10000 dots"));
  EXPECT_THAT(report(kSome, {"model.dim={" + deep + " = 1}"}), HasSubstr("expected an integer"));
  std::vector<std::string> warnings;
  EXPECT_THROW(load_config("absent.toml", {}, &warnings), Error);
  EXPECT_THROW(load_config(".", {}, &warnings), Error);
}

TEST_F(ConfigTest, ReportsImpossibleShapesWithWhatWouldWork) {
  EXPECT_EQ(
      report("[model]\ndim = 96\nn_heads = 5\n"),
      "demo.toml:3: model.n_heads = 5: dim = 96 must split into heads of an even width (RoPE turns pairs): "
      "1, 2, 3, 4, 6, 8, 12 or 16 heads would work");
  EXPECT_EQ(
      report("[model]\ndim = 7\nn_heads = 1\n"),
      "demo.toml:3: model.n_heads = 1: dim = 7 must split into heads of an even width (RoPE turns pairs): "
      "make dim even");
  EXPECT_EQ(
      report("[model]\ndim = 250\n"),  // n_heads is the default: the line is that of dim
      "demo.toml:2: model.n_heads = 4: dim = 250 must split into heads of an even width (RoPE turns pairs): "
      "1, 5, 25 or 125 heads would work");
  EXPECT_EQ(report("[model]\nn_heads = 12\ndim = 96\nn_kv_heads = 5\n"),
            "demo.toml:4: model.n_kv_heads = 5: must divide n_heads = 12: 1, 2, 3, 4, 6 or 12 would work");
  EXPECT_EQ(report("[model]\nhead_dim = 33\n"),
            "demo.toml:2: model.head_dim = 33: must be even, because RoPE turns pairs: 32 or 34 would work");
  EXPECT_EQ(
      report(kSome, {"model.dim=250"}),
      "--set model.dim=250: model.n_heads = 4: dim = 250 must split into heads of an even width (RoPE turns "
      "pairs): 1, 5, 25 or 125 heads would work");
  EXPECT_EQ(report(kSome, {"model.n_heads=3"}),
            "--set model.n_heads=3: dim = 256 must split into heads of an even width (RoPE turns pairs): "
            "1, 2, 4, 8, 16, 32, 64 or 128 heads would work");
  EXPECT_EQ(
      report("[model]\nlayer_types = ['sliding']\n"),
      "demo.toml:2: model.sliding_window = 0: layer_types contains \"sliding\", so this must be 1 or more");
  EXPECT_EQ(
      report("[model]\nrope_scaling = 'llama3'\nrope_factor = 8\n"),
      "demo.toml:2: model.rope_original_seq_len = 0: rope_scaling = \"llama3\" needs the context that the "
      "model was first trained with, in tokens");
  EXPECT_EQ(
      report("[model]\nrope_scaling = 'llama3'\nrope_original_seq_len = 64\nrope_low_freq_factor = 4\n"),
      "demo.toml:4: model.rope_high_freq_factor = 4.0: must be above rope_low_freq_factor = 4");
  EXPECT_EQ(report("[model]\nn_heads = 65536\nhead_dim = 65536\n"),
            "demo.toml:3: model.head_dim = 65536: n_heads * head_dim = 4294967296: at most 4194304");
  // A head count that did not parse says nothing about the other keys.
  EXPECT_EQ(report("[model]\ndim = 7\nn_heads = 0\n"),
            "demo.toml:3: model.n_heads = 0: expected an integer in [1, 65536]");
}

TEST_F(ConfigTest, ReportsStepsThatCannotBeProfiled) {
  for (const char* steps : {"auto", "1", "7-9", "901-1000"})
    EXPECT_EQ(load(kSome, {"train.steps=1000", fmt::format("log.profile={}", steps)}).log.profile, steps);
  for (const char* steps : {"soon", "3-", "-3", "3--4", "3-4-5", "3 - 4", "99999999999999999999", "0x3"})
    EXPECT_THAT(report(kSome, {fmt::format("log.profile={}", steps)}),
                HasSubstr("expected steps, such as \"10-12\" or \"10\", or \"auto\""));
  for (const char* steps : {"0", "0-2", "5-4"})
    EXPECT_THAT(report(kSome, {fmt::format("log.profile={}", steps)}),
                HasSubstr("expected a first step of at least 1, and a last step from it on"));
  EXPECT_EQ(report("[train]\nsteps = 8\n[log]\nprofile = '7-9'\n"),
            "demo.toml:4: log.profile = \"7-9\": the last step is train.steps = 8");
  EXPECT_THAT(report(kSome, {"train.steps=1000", "log.profile=1-101"}), HasSubstr("at most 100 steps"));
}

TEST_F(ConfigTest, ReportsAScheduleThatDoesNotFit) {
  EXPECT_EQ(report("[train]\nsteps = 100\n[optim]\nwarmup_steps = 101\n"),
            "demo.toml:4: optim.warmup_steps = 101: the warm-up must end before the schedule does: at most "
            "train.steps = 100");
  EXPECT_EQ(report("[optim]\nschedule = 'wsd'\ndecay_steps = 50\nwarmup_steps = 20\nwsd_steps = 31\n"),
            "demo.toml:5: optim.wsd_steps = 31: the final decay must fit after the warm-up: at most 30");
  EXPECT_EQ(report("[optim]\ndecay = 'regex'\n"),
            "demo.toml:2: optim.decay_regex = \"\": decay = \"regex\" needs a regular expression, such as "
            "\"proj\"");
  EXPECT_THAT(report("[optim]\ndecay = 'regex'\ndecay_regex = '(proj'\n"),
              HasSubstr("demo.toml:3: optim.decay_regex = \"(proj\": not a regular expression: "));
  EXPECT_EQ(report("[train]\nspike_factor = 0.5\n"),
            "demo.toml:2: train.spike_factor = 0.5: expected 0 (off) or more than 1: ordinary steps would be "
            "spikes");
  EXPECT_EQ(report("[train]\nsteps = 1e12\nseq_len = 1e6\nglobal_batch = 1e6\n"),
            "demo.toml:2: train.steps = 1000000000000: steps * global_batch * seq_len = 1e+24 tokens: at "
            "most 1e18");
}

TEST_F(ConfigTest, ReportsEachRuleOnNamesThatIsNone) {
  const std::string text = report(
      "[optim]\nfreeze = ['embed', '[a']\nlr_multipliers = ['embed 0.1', 'norm = 2', '(b = 1', 'c = -1']\n");
  for (const char* problem :
       {"4 problems", "demo.toml:2: optim.freeze = [\"embed\", \"[a\"]: \"[a\": not a regular expression: ",
        "\"embed 0.1\": expected \"REGEX = NUMBER\"\n", "\"(b = 1\": not a regular expression: ",
        "\"c = -1\": expected \"REGEX = NUMBER\" with a number in [0, 1e+06], not \"-1\""})
    EXPECT_THAT(text, HasSubstr(problem));
  EXPECT_THAT(report("[optim]\nlr_multipliers = 'embed = 0.5'\nfreeze = 'norm'\n"), "accepted");
  EXPECT_THAT(report("[data]\nvalid = ['a', 'b', 'a']\n"), HasSubstr("\"a\" is listed more than once"));
}

TEST_F(ConfigTest, CountsTheTokensOfARamp) {
  // 8e17 tokens, where steps * global_batch would be 1.6e18.
  const std::string ramped =
      "[train]\nsteps = 2e8\nseq_len = 8e6\nglobal_batch = 1000\nbatch_ramp_start = 1\n"
      "batch_ramp_increment = 999\nbatch_ramp_samples = 1e8\n";
  EXPECT_EQ(report(ramped), "accepted");
  EXPECT_THAT(report(ramped, {"train.batch_ramp_samples=5e7"}), HasSubstr("at most 1e18"));
}

TEST_F(ConfigTest, WarnsOfSettingsWithoutEffect) {
  load(
      "[optim]\nschedule = 'constant'\nmin_lr_ratio = 0.5\ndecay_regex = 'proj'\nwsd_shape = 'linear'\n"
      "[model]\nrope_factor = 2\nsliding_window = 9\n[data]\nvalid = 'v'\nvalid_fraction = 0.1\n[train]\n"
      "micro_batch = 20\n",
      {"data.format=tensor", "data.shuffle=false"});
  EXPECT_THAT(
      warnings_,
      ElementsAre(
          "demo.toml: train.micro_batch = 20 is more than global_batch = 16, which is all it will hold",
          "demo.toml:3: optim.min_lr_ratio = 0.5: no effect unless optim.schedule is not \"constant\"",
          "demo.toml:4: optim.decay_regex = \"proj\": no effect unless optim.decay is \"regex\"",
          "demo.toml:7: model.rope_factor = 2.0: no effect unless rope_scaling is not \"none\"",
          "demo.toml:8: model.sliding_window = 9: no effect unless layer_types contains \"sliding\"",
          "demo.toml:11: data.valid_fraction = 0.1: no effect unless data.valid is empty and data.format is "
          "\"indexed\"",
          "--set data.shuffle=false: no effect unless data.format is \"indexed\""));

  load("[model]\nfrom_hf = 'folder'\ndim = 7\ndropout = 0.1\n");  // 7 would be impossible, but it is not used
  EXPECT_THAT(warnings_,
              ElementsAre("demo.toml:3: model.dim = 7: no effect: the shape comes from model.from_hf"));
}

TEST_F(ConfigTest, ResolveFillsInWhatIsDerived) {
  Config config = load("[model]\ndim = 96\nn_heads = 6\n[optim]\nschedule = 'wsd'\n[train]\nsteps = 50\n");
  resolve(&config);
  EXPECT_EQ(config.model.n_kv_heads, 6);
  EXPECT_EQ(config.model.head_dim, 16);
  EXPECT_EQ(config.model.ffn_dim, 256);  // 8/3 of 96 is 256
  EXPECT_EQ(config.model.attn_scale, 0.25);
  EXPECT_EQ(config.optim.decay_steps, 50);
  EXPECT_EQ(config.optim.wsd_steps, 10);
  EXPECT_EQ(config.model.rope_attention_factor, 0);
  const std::string once = to_toml(config);
  resolve(&config);
  EXPECT_EQ(to_toml(config), once);

  Config wide = load(
      "[model]\ndim = 104\nrope_scaling = 'yarn'\nrope_factor = 4\nrope_original_seq_len = 32\n"
      "[optim]\nschedule = 'wsd'\nwarmup_steps = 9\n[train]\nsteps = 10\n");
  resolve(&wide);
  EXPECT_EQ(wide.model.ffn_dim, 320);  // 277.3 rounded up to a multiple of 64
  EXPECT_DOUBLE_EQ(wide.model.rope_attention_factor, 0.1 * std::log(4.0) + 1);
  EXPECT_EQ(wide.optim.wsd_steps, 1);  // what the warm-up leaves
}

TEST_F(ConfigTest, TomlReadsBackAsTheSameConfig) {
  Config config = load(R"([model]
dim = 112
n_heads = 4
norm_eps = 1.2345678901234567e-6
rope_theta = 123456.78901234567
layer_types = ["sliding", "full"]
sliding_window = 16
rope_layers = [true, false]
[optim]
lr = 0.1
eps = 1e-300
[data]
train = ["a \"quoted\" \\ path", "tab\there", "überall"]
[train]
steps = 1_000_000_000_000
global_batch = 8
[log]
run_dir = "line\nbreak \u0001 \u007f"
)");
  resolve(&config);
  const std::string text = to_toml(config);
  EXPECT_EQ(to_toml(load(text)), text);
  EXPECT_THAT(warnings_, IsEmpty());
  const Config again = load(text);
  EXPECT_EQ(again.model.rope_theta, config.model.rope_theta);
  EXPECT_EQ(again.data.train, config.data.train);
  EXPECT_EQ(again.log.run_dir, "line\nbreak \x01 \x7f");
  EXPECT_EQ(again.optim.lr, 0.1);
}

TEST_F(ConfigTest, EveryDefaultIsAllowedAndPrinted) {
  Config defaults;
  const std::string text = to_toml(defaults);
  for (const auto& key : config_keys()) {
    EXPECT_EQ(violation(key, key.member(defaults)), "") << key.name;
    EXPECT_THAT(text, HasSubstr("\n" + key.short_name() + " = ")) << key.name;
    EXPECT_EQ(find_key(key.name), &key) << "twice in the table: " << key.name;
    EXPECT_THAT(key.help, ::testing::EndsWith(".")) << key.name;
  }
  EXPECT_EQ(to_toml(load(text)), text);
}

TEST_F(ConfigTest, DrawnNumbersSurviveTheRoundTrip) {
  std::mt19937_64 rng(1);
  for (int trial = 0; trial < 200; ++trial) {
    Config config;
    config.optim.lr = std::ldexp(static_cast<double>(rng() >> 11), -53 - static_cast<int>(rng() % 60));
    config.model.norm_eps = std::ldexp(static_cast<double>((rng() >> 11) | 1), -54);
    if (config.optim.lr == 0) continue;
    const Config again = load(to_toml(config));
    EXPECT_EQ(again.optim.lr, config.optim.lr);
    EXPECT_EQ(again.model.norm_eps, config.model.norm_eps);
  }
}

TEST_F(ConfigTest, ArbitraryBytesAreRefusedOrReadButNeverCrash) {
  std::mt19937_64 rng(7);
  const std::string valid = to_toml(Config{});
  int refused = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text = trial % 2 == 0 ? valid : std::string(rng() % 200, '\0');
    if (trial % 2 == 1) {
      for (auto& c : text) c = static_cast<char>(rng());
    } else {  // a few bytes changed, then cut
      for (int i = 0; i < 4; ++i) text[rng() % text.size()] = static_cast<char>(rng());
      text.resize(rng() % text.size() + 1);
    }
    refused +=
        report(text, {text.substr(0, rng() % 40), "model.layer_types=" + text.substr(0, 20)}) != "accepted";
  }
  EXPECT_GT(refused, 1900);
}

TEST_F(ConfigTest, ShapeProblemsJudgesAnyModel) {
  EXPECT_THAT(shape_problems(ModelConfig{}), IsEmpty());
  ModelConfig model;
  model.dim = -5;
  model.n_heads = 0;
  model.layer_types = {};
  EXPECT_THAT(shape_problems(model),
              ElementsAre("dim = -5: expected an integer in [1, 1048576]",
                          "n_heads = 0: expected an integer in [1, 65536]",
                          "layer_types = []: expected a list of \"full\" or \"sliding\""));
  model = {};
  model.n_kv_heads = 3;
  model.rope_scaling = "yarn";
  EXPECT_THAT(
      shape_problems(model),
      ElementsAre("n_kv_heads = 3: must divide n_heads = 4: 1, 2 or 4 would work",
                  "rope_original_seq_len = 0: rope_scaling = \"yarn\" needs the context that the model was "
                  "first trained with, in tokens"));
}

TEST_F(ConfigTest, TrainingNeedsDataAndAVocabulary) {
  Config config;
  try {
    check_for_training(config);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "this config cannot train:\n"
                 "  data.train is empty: name what to train on (`weft data build` makes it from text)\n"
                 "  model.vocab_size is 0 and there is no data.tokenizer to take it from: set one of them");
  }
  config.data.train = {"corpus"};
  config.data.tokenizer = "tokenizer.json";
  EXPECT_NO_THROW(check_for_training(config));
  config.model.position = "learned", config.model.max_positions = 7, config.train.seq_len = 8;
  EXPECT_THROW(check_for_training(config), Error);
  config.train.seq_len = 7;
  EXPECT_NO_THROW(check_for_training(config));
}

TEST(Explain, TellsWhatAKeyIs) {
  EXPECT_EQ(explain("optim.wsd_steps"),
            "optim.wsd_steps\n"
            "  Length of the final decay. 0: a fifth of decay_steps.\n"
            "  type     integer\n"
            "  allowed  an integer in [0, 1000000000000]\n"
            "  default  0\n"
            "  unit     steps\n"
            "  matters  when optim.schedule is \"wsd\"\n");
  EXPECT_EQ(explain("lr"), explain("optim.lr"));
  EXPECT_THAT(explain("seed"), HasSubstr("data.seed\n"));  // both of them
  EXPECT_THAT(explain("seed"), HasSubstr("\ntrain.seed\n"));
  EXPECT_THAT(explain("precision"), HasSubstr("precision.compute\n"));
  try {
    explain("model.dmi");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no config key or section model.dmi; did you mean model.dim?");
  }
}

TEST(ConfigReference, IsTheDocsPage) {
  std::ifstream file(std::string(WEFT_FIXTURES) + "/../../docs/config.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(page, config_reference()) << "run `build/weft config --docs > docs/config.md`";
}

// What the guide shows as a config is one, and every key in it has an effect.
TEST(Docs, EveryTomlBlockLoads) {
  int blocks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(WEFT_FIXTURES) + "/../../docs")) {
    if (entry.path().extension() != ".md") continue;
    std::ifstream file(entry.path());
    std::string block;
    bool inside = false;
    for (std::string line; std::getline(file, line);) {
      if (inside && line == "```") {
        TemporaryDir dir;
        std::ofstream(dir / "block.toml") << block;
        std::vector<std::string> warnings;
        EXPECT_NO_THROW(load_config(dir / "block.toml", {}, &warnings)) << entry.path() << "\n" << block;
        EXPECT_THAT(warnings, IsEmpty()) << entry.path() << "\n" << block;
        ++blocks, inside = false, block.clear();
      } else if (inside) {
        block += line + "\n";
      } else {
        inside = line == "```toml";
      }
    }
  }
  EXPECT_GE(blocks, 1);
}

TEST_F(ConfigTest, TellsWhichKeysWereChosen) {
  Config config;
  resolve(&config);
  EXPECT_TRUE(chosen_keys(config).empty()) << "what is derived is nobody's choice";
  config.model.n_kv_heads = 2, config.optim.lr = 0.5, config.data.train = {"a = b"};
  EXPECT_EQ(chosen_keys(config), (std::vector<std::string>{"model.n_kv_heads", "data.train", "optim.lr"}));
  const auto values = toml_values(to_toml(config));
  EXPECT_EQ(values.front().first, "model.from_hf");
  EXPECT_EQ(values.back().first, config_keys().back().name);
  EXPECT_EQ(values.size(), config_keys().size());
  EXPECT_EQ(std::count(values.begin(), values.end(),
                       std::pair<std::string, std::string>("data.train", "[\"a = b\"]")),
            1);
}

}  // namespace
}  // namespace weft
