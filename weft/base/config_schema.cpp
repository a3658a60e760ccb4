#include "weft/base/config_schema.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"

namespace weft {
namespace {

// A key is named after its member, so the two cannot drift apart.
#define KEY(section, member) #section "." #member, [](Config & c) -> Value { return &c.section.member; }
#define WHEN(text, condition) text, [](const Config& c) -> bool { return condition; }
#define CAN_SAMPLE WHEN("there is a data.tokenizer", !c.data.tokenizer.empty())
#define SAMPLES                                                         \
  WHEN("there is a data.tokenizer and log.sample_prompts is not empty", \
       !c.data.tokenizer.empty() && !c.log.sample_prompts.empty())
#define ROPE() WHEN("position is \"rope\"", c.model.position == "rope")

Allowed between(double low, double high) { return {.low = low, .high = high, .words = {}}; }
Allowed above(double low, double high) { return {.low = low, .high = high, .low_open = true, .words = {}}; }
Allowed below(double low, double high) { return {.low = low, .high = high, .high_open = true, .words = {}}; }
Allowed one_of(std::vector<std::string> words) { return {.words = std::move(words)}; }
Allowed anything() { return {}; }

bool has_validation(const DataConfig& data) {
  return !data.valid.empty() || data.format == "mock" ||
         (data.format == "indexed" && data.valid_fraction > 0);
}

// The upper bounds keep products such as n_layers * dim * ffn_dim * 8 bytes inside an int64.
constexpr double kMaxSteps = 1e12, kMaxWidth = 1 << 20, kMaxSeed = 1e15, kMaxRanks = 1 << 20;

std::vector<Key> model_keys() {
  return {
      {KEY(model, from_hf), anything(), "path",
       "HuggingFace folder (config.json, safetensors): shape and initial weights come from it."},
      {KEY(model, architecture), anything(), "",
       "What the model is made of: \"decoder\", or the name under which a plug-in adds another."},
      {KEY(model, plugins), anything(), "paths",
       "Shared libraries that add architectures; they are loaded, so name only those you trust."},
      {KEY(model, n_layers), between(1, 4096), "", "Decoder layers."},
      {KEY(model, dim), between(1, kMaxWidth), "", "Width of the residual stream."},
      {KEY(model, n_heads), between(1, 65536), "", "Query heads."},
      {KEY(model, n_kv_heads), between(0, 65536), "", "Key and value heads (GQA). 0: n_heads."},
      {KEY(model, head_dim), between(0, 65536), "", "Width of a head. 0: dim / n_heads."},
      {KEY(model, ffn_dim), between(0, 1 << 22), "",
       "Inner width of the MLP. 0: 8/3 dim, rounded up to a multiple of 64; 4 dim where mlp is \"plain\"."},
      {KEY(model, vocab_size), between(0, 1 << 28), "tokens", "Rows of the embedding. 0: the tokenizer's."},
      {KEY(model, tie_embeddings), anything(), "", "The output projection is the embedding."},

      {KEY(model, norm), one_of({"rmsnorm", "layernorm"}), "",
       "RMSNorm, or LayerNorm with a bias (GPT-2, BLOOM, StarCoder2, Falcon)."},
      {KEY(model, norm_eps), above(0, 1), "", "Added to the mean square, or the variance, in a norm."},
      {KEY(model, norm_unit_offset), anything(), "", "Norms multiply by 1 + weight (Gemma)."},
      {KEY(model, norm_placement), one_of({"pre", "post", "sandwich"}), "",
       "Norm before each sub-layer, of its output before it is added (OLMo-2), or both (Gemma 2 and 3)."},
      {KEY(model, block), one_of({"sequential", "parallel", "parallel_shared_norm"}), "",
       "Attention, then MLP; or both from the same input, each with a norm of its own (Falcon 40B) or with "
       "one "
       "norm for both (Falcon 7B)."},
      {KEY(model, embedding_norm), anything(), "", "A norm right after the embedding (BLOOM)."},
      {KEY(model, qk_norm), one_of({"none", "head", "all_heads"}), "",
       "RMSNorm of q and k: in each head (Qwen3, Gemma 3) or over all heads at once (OLMo-2)."},
      {KEY(model, mlp), one_of({"gated", "plain"}), "",
       "down(activation(gate x) * up x), or down(activation(up x))."},
      {KEY(model, activation), one_of({"silu", "gelu", "gelu_tanh"}), "",
       "Activation of the MLP; gelu_tanh is GELU's tanh form."},
      {KEY(model, qkv_bias), anything(), "", "Biases in the q, k and v projections (Qwen2)."},
      {KEY(model, o_bias), anything(), "", "A bias in the attention's output projection."},
      {KEY(model, mlp_bias), anything(), "", "Biases in the MLP."},

      {KEY(model, layer_types), one_of({"full", "sliding"}), "",
       "Attention of each layer; a shorter list repeats over the layers."},
      {KEY(model, sliding_window), between(0, 1 << 30), "tokens",
       "Keys that a query of a \"sliding\" layer sees, itself included.",
       WHEN("layer_types contains \"sliding\"", has_sliding(c.model))},
      {KEY(model, attn_scale), between(0, 1e6), "", "Scores are q.k times this. 0: head_dim^-1/2."},
      {KEY(model, attn_softcap), between(0, 1e6), "",
       "Attention scores s become cap tanh(s / cap) (Gemma 2). 0: off."},
      {KEY(model, final_softcap), between(0, 1e6), "", "The same on the logits. 0: off."},
      {KEY(model, embedding_multiplier), above(0, 1e6), "",
       "Embeddings are multiplied by this (Gemma: the root of dim)."},
      {KEY(model, residual_multiplier), above(0, 1e6), "",
       "Each sub-layer's output is multiplied by this before it is added (Granite)."},
      {KEY(model, logits_multiplier), above(0, 1e6), "", "Logits are multiplied by this (Granite)."},

      {KEY(model, position), one_of({"rope", "learned", "alibi"}), "",
       "Rotary embedding of q and k, a learned vector per position (GPT-2), or a bias of the scores by "
       "distance "
       "(BLOOM)."},
      {KEY(model, max_positions), between(0, 1 << 24), "tokens",
       "Rows of the learned position table. 0: train.seq_len.",
       WHEN("position is \"learned\"", c.model.position == "learned")},

      {KEY(model, rope_layers), anything(), "",
       "Which layers rotate q and k; a shorter list repeats over the layers (SmolLM3).", ROPE()},
      {KEY(model, rope_dim), between(0, 65536), "",
       "The first dims of each head that turn; the rest carry no position (Phi-4). 0: head_dim.", ROPE()},
      {KEY(model, rope_theta), above(1, 1e12), "", "Base of the RoPE frequencies.", ROPE()},
      {KEY(model, rope_theta_sliding), between(0, 1e12), "",
       "Base of \"sliding\" layers, which are then never scaled (Gemma 3). 0: as the other layers.",
       WHEN("layer_types contains \"sliding\" and position is \"rope\"",
            has_sliding(c.model) && c.model.position == "rope")},
      {KEY(model, rope_scaling), one_of({"none", "linear", "dynamic", "llama3", "yarn", "longrope"}), "",
       "How RoPE is stretched to longer contexts.", ROPE()},
      {KEY(model, rope_factor), between(1, 1e6), "", "Stretch of the context.",
       WHEN("rope_scaling is not \"none\"", c.model.rope_scaling != "none")},
      {KEY(model, rope_original_seq_len), between(0, 1 << 30), "tokens",
       "Context that the model was first trained with.",
       WHEN("rope_scaling is \"dynamic\", \"llama3\", \"yarn\" or \"longrope\"",
            c.model.rope_scaling != "none" && c.model.rope_scaling != "linear")},
      {KEY(model, rope_low_freq_factor), above(0, 1e6), "",
       "Wavelengths above original context / this are stretched in full.",
       WHEN("rope_scaling is \"llama3\"", c.model.rope_scaling == "llama3")},
      {KEY(model, rope_high_freq_factor), above(0, 1e6), "",
       "Wavelengths below original context / this are left alone.",
       WHEN("rope_scaling is \"llama3\"", c.model.rope_scaling == "llama3")},
      {KEY(model, rope_beta_fast), above(0, 1e6), "turns",
       "Dimensions that turn more often over the original context are left alone.",
       WHEN("rope_scaling is \"yarn\"", c.model.rope_scaling == "yarn")},
      {KEY(model, rope_beta_slow), above(0, 1e6), "turns",
       "Dimensions that turn less often over the original context are stretched in full.",
       WHEN("rope_scaling is \"yarn\"", c.model.rope_scaling == "yarn")},
      {KEY(model, rope_attention_factor), between(0, 100), "",
       "q and k are multiplied by this. 0: 0.1 ln(rope_factor) + 1 with yarn, and the root of "
       "1 + ln(rope_factor) / ln(rope_original_seq_len) with longrope.",
       WHEN("rope_scaling is \"yarn\" or \"longrope\"",
            c.model.rope_scaling == "yarn" || c.model.rope_scaling == "longrope")},
      {KEY(model, rope_truncate), anything(), "",
       "Round the range between beta_fast and beta_slow outwards to whole dimensions.",
       WHEN("rope_scaling is \"yarn\"", c.model.rope_scaling == "yarn")},
      {KEY(model, rope_short_factors), between(0, 1e9), "",
       "Each frequency is divided by its factor in documents of up to rope_original_seq_len tokens.",
       WHEN("rope_scaling is \"longrope\"", c.model.rope_scaling == "longrope")},
      {KEY(model, rope_long_factors), between(0, 1e9), "", "The same in longer documents.",
       WHEN("rope_scaling is \"longrope\"", c.model.rope_scaling == "longrope")},

      {KEY(model, init_std), between(0, 10), "", "Standard deviation of the initial weights."},
      {KEY(model, norm_init_std), between(0, 10), "",
       "Standard deviation of the norms' initial gains, whose mean is 1: above 0 in tests, which must tell "
       "gains "
       "apart."},
      {KEY(model, dropout), below(0, 1), "", "Dropout of the embedding and of each sub-layer's output."},
      {KEY(model, attention_dropout), below(0, 1), "", "Dropout of the attention probabilities."},
  };
}

std::vector<Key> data_keys() {
  return {
      {KEY(data, format), one_of({"indexed", "tensor", "mock"}), "",
       "Pairs of .bin and .idx files (`weft data build`), or a safetensors file of tokens "
       "[step, sequence, seq_len + 1], read in order; or random tokens without any file, to measure speed "
       "with."},
      {KEY(data, train), anything(), "paths",
       "Training data: prefixes of .bin/.idx pairs, or one safetensors file."},
      {KEY(data, valid), anything(), "paths",
       "Validation data; each dataset also gets a loss of its own. Empty: split off by valid_fraction."},
      {KEY(data, valid_fraction), below(0, 1), "",
       "Share of the training documents, the last ones, kept for validation.",
       WHEN("data.valid is empty and data.format is \"indexed\"",
            c.data.valid.empty() && c.data.format == "indexed")},
      {KEY(data, tokenizer), anything(), "path", "A tokenizer.json; copied into the run directory."},
      {KEY(data, document_mask), anything(), "", "Attention and positions restart at each document.",
       WHEN("data.format is \"indexed\"", c.data.format == "indexed")},
      {KEY(data, shuffle), anything(), "", "Draw the samples in random order.",
       WHEN("data.format is \"indexed\"", c.data.format == "indexed")},
      {KEY(data, seed), between(0, kMaxSeed), "", "Seed of the order of the samples.",
       WHEN("data.format is \"indexed\" and data.shuffle is true",
            c.data.format == "indexed" && c.data.shuffle)},
  };
}

std::vector<Key> train_keys() {
  return {
      {KEY(train, steps), between(1, kMaxSteps), "steps", "Optimizer steps."},
      {KEY(train, seq_len), between(1, 1 << 24), "tokens", "Length of a sequence."},
      {KEY(train, micro_batch), between(1, 1 << 16), "sequences",
       "Sequences that go through the model at once."},
      {KEY(train, global_batch), between(1, 1 << 24), "sequences", "Sequences of one optimizer step."},
      {KEY(train, batch_ramp_start), between(0, 1 << 24), "sequences",
       "Global batch of the first step, which then grows to global_batch. 0: no ramp."},
      {KEY(train, batch_ramp_increment), between(0, 1 << 24), "sequences",
       "By how much the batch grows at once.",
       WHEN("train.batch_ramp_start is not 0", c.train.batch_ramp_start != 0)},
      {KEY(train, batch_ramp_samples), between(0, kMaxSteps), "sequences",
       "Sequences after which the batch has grown to global_batch, in equal shares for each size.",
       WHEN("train.batch_ramp_start is not 0", c.train.batch_ramp_start != 0)},
      {KEY(train, seed), between(0, kMaxSeed), "", "Seed of the initial weights and of dropout."},
      {KEY(train, z_loss), between(0, 1), "",
       "Weight of the squared log of the softmax's normaliser, added to the loss. 0: off."},
      {KEY(train, eval_every), between(0, kMaxSteps), "steps",
       "Steps between evaluations. 0: only at the end.",
       WHEN("there is validation data", has_validation(c.data))},
      {KEY(train, eval_sequences), between(0, kMaxSteps), "sequences",
       "Sequences of each validation dataset that an evaluation takes. 0: all.",
       WHEN("there is validation data", has_validation(c.data))},
      {KEY(train, on_bad_step), one_of({"skip", "stop"}), "",
       "What to do when the loss or the gradient is not finite, or spikes."},
      {KEY(train, spike_factor), between(0, 1e6), "",
       "A gradient norm above this times its running mean is a spike. 0: off."},
      {KEY(train, max_skips), between(1, kMaxSteps), "steps",
       "Steps skipped one after another before the run stops.",
       WHEN("train.on_bad_step is \"skip\"", c.train.on_bad_step == "skip")},
      {KEY(train, early_stop_patience), between(0, kMaxSteps), "evaluations",
       "Evaluations in a row without a better validation loss before the run ends. 0: off.",
       WHEN("there is validation data and train.eval_every is not 0",
            has_validation(c.data) && c.train.eval_every != 0)},
      {KEY(train, early_stop_min_delta), between(0, 1e3), "nats",
       "A validation loss lower by less than this is no better.",
       WHEN("train.early_stop_patience is not 0", c.train.early_stop_patience != 0)},
      {KEY(train, threads), between(0, 4096), "", "CPU threads. 0: all cores."},
  };
}

std::vector<Key> optim_keys() {
  return {
      {KEY(optim, name), one_of({"adamw"}), "", "The optimizer."},
      {KEY(optim, lr), above(0, 1), "", "Highest learning rate."},
      {KEY(optim, beta1), below(0, 1), "", "Decay of the mean of the gradient."},
      {KEY(optim, beta2), below(0, 1), "", "Decay of the mean of its square."},
      {KEY(optim, eps), above(0, 1), "", "Added to the root of the mean square."},
      {KEY(optim, weight_decay), between(0, 1000), "", "Decoupled weight decay, times lr in each step."},
      {KEY(optim, decay), one_of({"matrices", "all", "regex"}), "",
       "Parameters that decay: those of two or more dims, all, or those whose name matches decay_regex.",
       WHEN("optim.weight_decay or optim.weight_decay_end is not 0",
            c.optim.weight_decay != 0 || c.optim.weight_decay_end != 0)},
      {KEY(optim, decay_regex), anything(), "regex",
       "Finds a match in the names of parameters that decay (Perl's syntax).",
       WHEN("optim.decay is \"regex\"", c.optim.decay == "regex")},
      {KEY(optim, weight_decay_schedule), one_of({"constant", "linear", "cosine"}), "",
       "How weight decay moves from weight_decay to weight_decay_end over train.steps."},
      {KEY(optim, weight_decay_end), between(0, 1000), "", "Weight decay of the last step.",
       WHEN("optim.weight_decay_schedule is not \"constant\"", c.optim.weight_decay_schedule != "constant")},
      {KEY(optim, lr_multipliers), anything(), "",
       "\"REGEX = NUMBER\": the learning rate of parameters in whose names the regex finds a match is "
       "multiplied "
       "by the number; the last match counts."},
      {KEY(optim, freeze), anything(), "regexes",
       "Parameters in whose names one of these finds a match are not trained."},
      {KEY(optim, ema_decay), below(0, 1), "",
       "An exponential moving average of the weights is kept with this decay a step, evaluated and saved. 0: "
       "off."},
      {KEY(optim, clip_norm), between(0, 1e6), "", "The gradient's norm is cut down to this. 0: off."},
      {KEY(optim, schedule), one_of({"cosine", "linear", "wsd", "constant"}), "",
       "Learning rate after the warm-up; wsd is warm-up, stable, decay."},
      {KEY(optim, warmup_steps), between(0, kMaxSteps), "steps",
       "The learning rate rises linearly over these."},
      {KEY(optim, decay_steps), between(0, kMaxSteps), "steps",
       "Step at which the schedule ends, warm-up included. 0: train.steps.",
       WHEN("optim.schedule is not \"constant\"", c.optim.schedule != "constant")},
      {KEY(optim, wsd_steps), between(0, kMaxSteps), "steps",
       "Length of the final decay. 0: a fifth of decay_steps.",
       WHEN("optim.schedule is \"wsd\"", c.optim.schedule == "wsd")},
      {KEY(optim, wsd_shape), one_of({"linear", "cosine", "exponential", "minus_sqrt"}), "",
       "Shape of the final decay.", WHEN("optim.schedule is \"wsd\"", c.optim.schedule == "wsd")},
      {KEY(optim, min_lr_ratio), between(0, 1), "", "Final learning rate / lr.",
       WHEN("optim.schedule is not \"constant\"", c.optim.schedule != "constant")},
  };
}

std::vector<Key> other_keys() {
  return {
      {KEY(parallel, dp_replicate), between(1, kMaxRanks), "ranks",
       "Replicas of what the dp_shard ranks hold together (HSDP)."},
      {KEY(parallel, dp_shard), between(-1, kMaxRanks), "ranks",
       "Data-parallel ranks that share one copy of the training state, as zero says. -1: all that are left."},
      {KEY(parallel, tp), between(1, kMaxRanks), "ranks",
       "Tensor-parallel ranks: each has some of the heads, of the MLP's features and of the vocabulary. Best "
       "inside one machine."},
      {KEY(parallel, sequence_parallel), anything(), "",
       "Between blocks the tp ranks split the tokens, so that activations there are held once, not tp times.",
       WHEN("parallel.tp is more than 1", c.parallel.tp > 1)},
      {KEY(parallel, async_tp), anything(), "",
       "Split the tp ranks' exchanges by the pieces of the tokens, and multiply one piece while the next "
       "travels.",
       WHEN("parallel.tp is more than 1 and parallel.sequence_parallel is true",
            c.parallel.tp > 1 && c.parallel.sequence_parallel)},
      {KEY(parallel, zero), between(0, 3), "",
       "What the dp_shard ranks share instead of each holding all of it (ZeRO): 0 nothing, 1 the optimizer's "
       "state and weights, 2 also the gradients, 3 also the weights that the model computes with."},
      {KEY(parallel, reshard_after_forward), anything(), "",
       "Free a block's gathered weights after its forward pass, and gather them again for backward.",
       WHEN("parallel.zero is 3", c.parallel.zero == 3)},
      {KEY(parallel, gradient_sync), one_of({"", "each", "last"}), "",
       "The micro-batches of a step after which gradients are reduced: each, so that only shards of them are "
       "kept, or the last, which sends less. \"\": each where zero is 2 or 3."},
      {KEY(parallel, check_replicas), between(0, kMaxSteps), "steps",
       "Steps between checks that every copy of a weight has the same bits. 0: never."},

      {KEY(comm, progress), one_of({"poll", "thread"}), "",
       "Who moves messages on while a rank computes: the rank itself, between ops, or a thread of its own."},
      {KEY(comm, timeout), above(0, 1e6), "seconds",
       "A rank that waits longer than this for others ends the job and says who waits for whom."},
      {KEY(comm, check), anything(), "",
       "Before each operation, compare what the ranks are about to do. Slow: for finding errors."},
      {KEY(comm, shared_memory), anything(), "",
       "Ranks of one machine reduce and gather in memory that they share."},

      {KEY(precision, compute), one_of({"fp32", "fp64"}), "",
       "Number format of activations and of the weights that the model computes with."},
      {KEY(precision, params), one_of({"", "fp32", "fp64"}), "",
       "Number format of the weights that the optimizer updates, of its state and of checkpoints. \"\": "
       "compute."},
      {KEY(precision, gradients), one_of({"", "fp32", "fp64"}), "",
       "Number format in which gradients are accumulated. \"\": compute."},
      {KEY(precision, reduce), one_of({"", "fp32", "fp64"}), "",
       "Number format in which gradients are sent and summed over ranks. \"\": gradients."},

      {KEY(memory, recompute), one_of({"none", "block"}), "",
       "Keep only the input of each layer, and run it again before its backward: a third more computing, for "
       "the "
       "memory of one layer's activations instead of all."},
      {KEY(memory, loss_chunk), between(0, 1 << 30), "tokens",
       "Tokens whose logits exist at once. 0: as many as give about 16 MB of logits."},

      {KEY(checkpoint, save_every), between(0, kMaxSteps), "steps",
       "Steps between checkpoints. 0: only at the end and on a signal."},
      {KEY(checkpoint, keep_last), between(0, kMaxSteps), "checkpoints",
       "Checkpoints that are kept. 0: all."},
      {KEY(checkpoint, save_final), anything(), "", "Save a checkpoint at the end."},
      {KEY(checkpoint, resume), anything(), "",
       "Continue from the last good checkpoint in the run directory."},

      {KEY(log, run_dir), anything(), "path", "Directory of the run: checkpoints, metrics, plot, config."},
      {KEY(log, every), between(1, kMaxSteps), "steps", "Steps per printed progress line."},
      {KEY(log, bigram_baseline), anything(), "",
       "Print an interpolated bigram's validation loss beside the model's.",
       WHEN("there is validation data", has_validation(c.data))},
      {KEY(log, plot), anything(), "", "Draw the loss in the terminal and write report.html at the end."},
      {KEY(log, tensorboard), anything(), "", "Write TensorBoard event files into run_dir/tensorboard."},
      {KEY(log, sample_every), between(0, kMaxSteps), "steps",
       "Steps between sampled texts. 0: only at the end.", SAMPLES},
      {KEY(log, sample_prompts), anything(), "",
       "What the sampled texts continue (temperature 0.7, top-p 0.9); an empty list: no samples.",
       CAN_SAMPLE},
      {KEY(log, sample_tokens), between(1, 1 << 20), "tokens", "Length of a sampled text.", SAMPLES},
      {KEY(log, profile), anything(), "steps",
       "Steps to trace into run_dir/trace.json, as \"10-12\" or \"10\"; \"auto\": three steps soon after the "
       "start; \"\": none."},
  };
}

#undef SAMPLES
#undef CAN_SAMPLE
#undef ROPE
#undef WHEN
#undef KEY

std::string bound(double value, bool integer) {
  if (integer) return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{:g}", value);
}

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;  // clang before 17 does not deduce it

std::string quoted_choices(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += toml_text(words[i]);
  }
  return text;
}

}  // namespace

const std::vector<Section>& config_sections() {
  static const std::vector<Section> sections = {
      {"model", "The decoder. A published model is a set of values."},
      {"data", "Token files, and how samples are drawn from them."},
      {"train", "Length and batches of the run."},
      {"optim", "The optimizer and its learning rate."},
      {"parallel", "The mesh of ranks, and what data-parallel ranks share."},
      {"comm", "How ranks communicate."},
      {"precision", "Number formats."},
      {"memory", "What is traded for memory."},
      {"checkpoint", "When the run is saved and resumed."},
      {"log", "What the run reports, and where."},
  };
  return sections;
}

const std::vector<Key>& config_keys() {
  static const std::vector<Key> keys = [] {
    std::vector<Key> all;
    for (auto part : {model_keys(), data_keys(), train_keys(), optim_keys(), other_keys()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return keys;
}

const Key* find_key(const std::string& name) {
  for (const auto& key : config_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

bool is_shape_key(const Key& key) {
  static const std::vector<std::string> kOthers = {
      "model.from_hf",       "model.architecture", "model.plugins",          "model.init_std",
      "model.norm_init_std", "model.dropout",      "model.attention_dropout"};
  return key.section() == "model" && std::ranges::find(kOthers, key.name) == kOthers.end();
}

std::string no_effect(const Key& key, const Config& config) {
  if (is_shape_key(key) && !config.model.from_hf.empty()) {
    return "no effect: the shape comes from model.from_hf";
  }
  return key.matters(config) ? "" : "no effect unless " + key.when;
}

std::string toml_text(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\u{:04x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string toml_text(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string toml_text(const Value& value) {
  const auto list = [](const auto& items, auto&& show) {
    std::string text;
    for (const auto& item : items) text += (text.empty() ? "" : ", ") + show(item);
    return "[" + text + "]";
  };
  const auto word = [](bool flag) { return std::string(flag ? "true" : "false"); };
  return std::visit(Overloaded{[](const std::string* text) { return toml_text(*text); },
                               [](const int64_t* number) { return fmt::format("{}", *number); },
                               [](const double* number) { return toml_text(*number); },
                               [&](const bool* flag) { return word(*flag); },
                               [&](const std::vector<std::string>* texts) {
                                 return list(*texts, [](const std::string& text) { return toml_text(text); });
                               },
                               [&](const std::vector<bool>* flags) { return list(*flags, word); },
                               [&](const std::vector<double>* numbers) {
                                 return list(*numbers, [](double number) { return toml_text(number); });
                               }},
                    value);
}

std::string type_name(const Value& value) {
  static const char* const names[] = {"text",           "integer",      "number",
                                      "true or false",  "list of text", "list of true or false",
                                      "list of numbers"};
  return names[value.index()];
}

std::string allowed_text(const Key& key) {
  static Config defaults;
  const Value value = key.member(defaults);
  const Allowed& allowed = key.allowed;
  if (std::holds_alternative<std::string*>(value)) {
    return allowed.words.empty() ? "text in quotes" : quoted_choices(allowed.words);
  }
  if (std::holds_alternative<std::vector<std::string>*>(value)) {
    return allowed.words.empty() ? "a list of text in quotes" : "a list of " + quoted_choices(allowed.words);
  }
  if (std::holds_alternative<bool*>(value)) return "true or false";
  if (std::holds_alternative<std::vector<bool>*>(value)) return "a list of true or false";
  const bool integer = std::holds_alternative<int64_t*>(value);
  const bool numbers = std::holds_alternative<std::vector<double>*>(value);
  return fmt::format("{} in {}{}, {}{}",
                     integer   ? "an integer"
                     : numbers ? "a list of numbers"
                               : "a number",
                     allowed.low_open ? '(' : '[', bound(allowed.low, integer), bound(allowed.high, integer),
                     allowed.high_open ? ')' : ']');
}

std::string violation(const Key& key, const Value& value) {
  const Allowed& allowed = key.allowed;
  const auto is_word = [&](const std::string& word) {
    return allowed.words.empty() ||
           std::find(allowed.words.begin(), allowed.words.end(), word) != allowed.words.end();
  };
  // Written so that a NaN fails.
  const auto in_range = [&](double number) {
    return (allowed.low_open ? number > allowed.low : number >= allowed.low) &&
           (allowed.high_open ? number < allowed.high : number <= allowed.high);
  };
  const bool fine = std::visit(
      Overloaded{[&](const std::string* text) { return is_word(*text); },
                 [&](const int64_t* number) { return in_range(static_cast<double>(*number)); },
                 [&](const double* number) { return in_range(*number); }, [](const bool*) { return true; },
                 [&](const std::vector<std::string>* texts) {
                   // A list of choices says something for every layer, so it cannot be empty.
                   return std::all_of(texts->begin(), texts->end(), is_word) &&
                          (allowed.words.empty() || !texts->empty());
                 },
                 [](const std::vector<bool>* flags) { return !flags->empty(); },
                 [&](const std::vector<double>* numbers) {
                   return std::all_of(numbers->begin(), numbers->end(), in_range);
                 }},
      value);
  return fine ? "" : "expected " + allowed_text(key);
}

}  // namespace weft
