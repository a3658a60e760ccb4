// The configuration of a run, as plain structs with their defaults. What each key means, its range
// and its unit are told once, in config_schema.cpp; parsing, validation, `weft config` and the docs
// page all come from that table. No torch header here: the thin executable reads configs too.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/env.h"

namespace weft {

/// [model]: one decoder; a published variant is a set of values, never a subclass.
struct ModelConfig {
  std::string from_hf;                   // a HuggingFace folder: shape and initial weights come from it
  std::string architecture = "decoder";  // what the model is made of (nn/architecture.h)
  std::vector<std::string> plugins;      // shared libraries that add architectures

  int64_t n_layers = 6;
  int64_t dim = 256;
  int64_t n_heads = 4;
  int64_t n_kv_heads = 0;  // 0: n_heads
  int64_t head_dim = 0;    // 0: dim / n_heads
  int64_t ffn_dim = 0;     // 0: 8/3 dim, rounded up to a multiple of 64
  int64_t vocab_size = 0;  // 0: the tokenizer's
  bool tie_embeddings = true;

  std::string norm = "rmsnorm";  // rmsnorm | layernorm (with a bias)
  double norm_eps = 1e-5;
  bool norm_unit_offset = false;       // gain is 1 + w (Gemma)
  std::string norm_placement = "pre";  // pre | post (OLMo-2: of the output) | sandwich (Gemma: both)
  std::string block = "sequential";    // sequential | parallel | parallel_shared_norm (Falcon)
  bool embedding_norm = false;         // a norm right after the embedding (BLOOM)
  std::string qk_norm = "none";        // none | head (Qwen3, Gemma3) | all_heads (OLMo-2): norm of q and k
  std::string mlp = "gated";           // gated | plain
  std::string activation = "silu";     // silu | gelu | gelu_tanh

  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;

  std::vector<std::string> layer_types = {"full"};  // full | sliding, repeated over the layers
  int64_t sliding_window = 0;                       // keys a query of a "sliding" layer sees, itself included
  double attn_scale = 0;                            // scores are q.k * attn_scale; 0: head_dim^-1/2
  double attn_softcap = 0;                          // s -> cap tanh(s / cap); 0: off
  double final_softcap = 0;                         // the same on the logits; 0: off
  double embedding_multiplier = 1;                  // Gemma: sqrt(dim)
  double residual_multiplier = 1;                   // of each sub-layer's output (Granite)
  double logits_multiplier = 1;                     // Granite: 1 / logits_scaling

  std::string position = "rope";           // rope | learned (GPT-2) | alibi (BLOOM)
  int64_t max_positions = 0;               // rows of the learned table; 0: train.seq_len
  std::vector<bool> rope_layers = {true};  // which layers rotate q and k, repeated (SmolLM3: NoPE layers)
  int64_t rope_dim = 0;                    // the first dims of each head that turn; 0: head_dim
  double rope_theta = 10000;
  double rope_theta_sliding = 0;      // base of "sliding" layers, never scaled (Gemma3); 0: as the others
  std::string rope_scaling = "none";  // none | linear | dynamic | llama3 | yarn | longrope
  double rope_factor = 1;
  int64_t rope_original_seq_len = 0;
  double rope_low_freq_factor = 1;         // llama3
  double rope_high_freq_factor = 4;        // llama3
  double rope_beta_fast = 32;              // yarn
  double rope_beta_slow = 1;               // yarn
  double rope_attention_factor = 0;        // yarn, longrope; 0: see attention_factor() in config.cpp
  bool rope_truncate = true;               // yarn: round the correction range to whole dims
  std::vector<double> rope_short_factors;  // longrope: each frequency's stretch up to the original length
  std::vector<double> rope_long_factors;   // longrope: the same beyond it

  double init_std = 0.02;
  double norm_init_std = 0;      // of the norms' gains
  double dropout = 0;            // of the embedding and of each sub-layer's output
  double attention_dropout = 0;  // of the attention probabilities
};

/// [data]: token files and how samples are drawn from them.
struct DataConfig {
  std::string format = "indexed";  // indexed (.bin/.idx) | tensor (a safetensors file, in order) | mock
  std::vector<std::string> train;  // path prefixes of .bin/.idx pairs, or one safetensors file
  std::vector<std::string> valid;  // the same, each a source of its own; empty: split off by valid_fraction
  double valid_fraction = 0.05;    // last documents of train that are kept for validation
  std::string tokenizer;           // tokenizer.json; copied into the run directory
  bool document_mask = true;       // attention and positions restart at each document
  bool shuffle = true;
  int64_t seed = 1234;
};

/// [train]
struct TrainConfig {
  int64_t steps = 1000;
  int64_t seq_len = 256;
  int64_t micro_batch = 4;           // sequences of seq_len
  int64_t global_batch = 16;         // sequences of seq_len
  int64_t batch_ramp_start = 0;      // global batch of the first step; 0: no ramp
  int64_t batch_ramp_increment = 0;  // sequences by which it grows
  int64_t batch_ramp_samples = 0;    // sequences over which it grows to global_batch
  int64_t seed = 42;                 // initialisation, dropout
  double z_loss = 0;
  int64_t eval_every = 100;          // steps; 0: only at the end (if there is validation data)
  int64_t eval_sequences = 64;       // 0: all of the validation data
  std::string on_bad_step = "skip";  // skip | stop, when loss or gradient is not finite, or spikes
  double spike_factor = 0;           // a gradient norm above this times its running mean is a spike; 0: off
  int64_t max_skips = 10;            // consecutive skipped steps before the run stops
  int64_t early_stop_patience = 0;   // evaluations without improvement before the run ends; 0: off
  double early_stop_min_delta = 0;   // what counts as improvement of the validation loss, in nats
  int64_t threads = 0;               // 0: all cores
};

/// [optim]
struct OptimConfig {
  std::string name = "adamw";
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::string decay = "matrices";  // matrices | all | regex
  std::string decay_regex;
  double weight_decay_end = 0;                     // where weight_decay_schedule ends
  std::string weight_decay_schedule = "constant";  // constant | linear | cosine
  std::vector<std::string> lr_multipliers;         // "REGEX = NUMBER", the last match counts
  std::vector<std::string> freeze;                 // regexes of parameters that are not trained
  double ema_decay = 0;                            // moving average of the weights; 0: off
  double clip_norm = 1.0;                          // 0: off
  std::string schedule = "cosine";                 // cosine | linear | wsd | constant
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;           // the schedule ends here; 0: train.steps
  int64_t wsd_steps = 0;             // length of the final decay; 0: a fifth of decay_steps
  std::string wsd_shape = "linear";  // linear | cosine | exponential | minus_sqrt
  double min_lr_ratio = 0.1;         // final lr / lr
};

/// [parallel]
struct ParallelConfig {
  int64_t dp_replicate = 1;  // data-parallel replicas of the sharded model (HSDP)
  int64_t dp_shard = -1;     // data-parallel ranks that share one copy of the model's state; -1: what is left
  int64_t tp = 1;            // tensor-parallel ranks, which split each layer's matrices
  bool sequence_parallel = true;  // between blocks tp ranks split the tokens
  bool async_tp = false;          // their products are made piece by piece, while other pieces travel
  int64_t zero = 1;  // what dp_shard ranks share: 0 nothing, 1 optimizer, 2 also gradients, 3 also params
  bool reshard_after_forward = true;  // zero 3: free a unit after its forward, gather it again for backward
  std::string gradient_sync;          // each | last micro-batch reduces; "": each from zero 2 on
  int64_t check_replicas = 0;         // steps between checks that copies agree; 0: off
};

/// [comm]
struct CommConfig {
  std::string progress = "poll";  // poll | thread
  double timeout = 600;           // seconds
  bool check = false;             // compare each operation's fingerprint over its group first
  bool shared_memory = true;      // unit buffers in shared memory where a group lies inside one node
};

/// [precision]
struct PrecisionConfig {
  std::string compute = "fp32";  // fp32 | fp64
  std::string params;            // of the weights that the optimizer updates, and its state; "": compute
  std::string gradients;         // accumulated in this; "": compute
  std::string reduce;            // summed over ranks in this; "": gradients
};

/// [memory]
struct MemoryConfig {
  std::string recompute = "none";  // none | block: a layer's activations are computed again for its backward
  int64_t loss_chunk = 0;  // tokens whose logits exist at once; 0: chosen so that logits take about 16 MB
};

/// [checkpoint]
struct CheckpointConfig {
  int64_t save_every = 0;  // steps; 0: only at the end and on a signal
  int64_t keep_last = 2;   // complete checkpoints kept; 0: all
  bool save_final = true;
  bool resume = true;  // continue from the last good checkpoint in the run directory
};

/// [log]
struct LogConfig {
  std::string run_dir = "runs/default";
  int64_t every = 1;             // steps per printed progress line
  bool bigram_baseline = false;  // print an interpolated bigram's validation loss beside the model's
  bool plot = true;              // terminal plot and report.html at the end
  bool tensorboard = true;       // event files in run_dir/tensorboard
  int64_t sample_every = 0;      // steps between sampled texts; 0: only at the end
  std::vector<std::string> sample_prompts = {""};  // what the sampled texts continue; empty list: none
  int64_t sample_tokens = 64;
  std::string profile;  // steps to trace: "first-last", or "auto": three steps soon after the start
};

struct Config {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimConfig optim;
  ParallelConfig parallel;
  CommConfig comm;
  PrecisionConfig precision;
  MemoryConfig memory;
  CheckpointConfig checkpoint;
  LogConfig log;
};

/// Reads `path` (TOML; "": no file) and the overrides ("model.dim=512", later ones win), checks everything
/// and throws one Error that lists every problem with file:line, key, value, what is allowed and the nearest
/// key. Warnings (settings without effect, …) are appended to `warnings`. Derived defaults (head_dim,
/// ffn_dim, …) are NOT yet filled in: see resolve().
Config load_config(const std::string& path, const std::vector<std::string>& overrides,
                   std::vector<std::string>* warnings, Env& env = Env::system());

/// Fills in what 0 or "" leaves to be derived inside the config (n_kv_heads, head_dim, ffn_dim, attn_scale,
/// decay_steps, …). Idempotent. vocab_size = 0 stays: the tokenizer tells it.
void resolve(ModelConfig* model);
void resolve(Config* config);

bool is_sliding(const ModelConfig& model, int64_t layer);
bool has_sliding(const ModelConfig& model);

/// Every way in which a model's shape is impossible (empty: fine), for configs from any source.
std::vector<std::string> shape_problems(const ModelConfig& model);

/// Throws Error naming the sizes that would do unless a resolved model's heads and MLP features can be split
/// among `tp` ranks.
void check_tensor_parallel(const ModelConfig& model, int64_t tp);

/// Throws one Error listing what a training run still needs: data, a vocabulary.
void check_for_training(const Config& config);

/// The config as TOML with every key, in schema order: `weft config --print` and the run directory's copy.
std::string to_toml(const Config& config);

/// "section.key" and value of each key in a text that to_toml wrote, in its order.
std::vector<std::pair<std::string, std::string>> toml_values(const std::string& toml);

/// The keys of a resolved config whose value is not what leaving them out would give, in schema order.
std::vector<std::string> chosen_keys(const Config& config);

/// `weft config --explain KEY`: type, default, range, unit and help of one key, or of each key of a section.
/// Throws Error with the nearest keys if there is none.
std::string explain(const std::string& key);

/// docs/config.md, whole.
std::string config_reference();

}  // namespace weft
