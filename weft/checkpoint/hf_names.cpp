#include "weft/checkpoint/hf_names.h"

#include <vector>

namespace weft {
namespace {

// What a file's tensor holds: one parameter, or several, one after the other.
// kQkv: all of q, k and v; kQkvPerGroup: the same of each key/value head and its query heads.
enum Fusion { kNone, kQkv, kQkvPerGroup, kGateUp };

struct Name {
  std::string ours, theirs;  // without ".weight" or ".bias", and in a layer without its prefix
  Fusion fusion = kNone;
  bool transposed = false;
};

}  // namespace

struct NameTable {
  std::string model, layers;  // theirs for "model." and "model.layers."
  std::vector<Name> names;    // what is spelt differently
};

namespace {

const NameTable kLlamaNames = {"model.", "model.layers.", {}};

const NameTable kPhi3Names = {"model.",
                              "model.layers.",
                              {{"self_attn.q_proj", "self_attn.qkv_proj", kQkv},
                               {"self_attn.k_proj", "self_attn.qkv_proj", kQkv},
                               {"self_attn.v_proj", "self_attn.qkv_proj", kQkv},
                               {"mlp.gate_proj", "mlp.gate_up_proj", kGateUp},
                               {"mlp.up_proj", "mlp.gate_up_proj", kGateUp}}};

const NameTable kStarcoder2Names = {
    "model.", "model.layers.", {{"mlp.up_proj", "mlp.c_fc"}, {"mlp.down_proj", "mlp.c_proj"}}};

const NameTable kGpt2Names = {"transformer.",
                              "transformer.h.",
                              {{"embed_tokens", "wte"},
                               {"embed_positions", "wpe"},
                               {"norm", "ln_f"},
                               {"input_layernorm", "ln_1"},
                               {"post_attention_layernorm", "ln_2"},
                               {"self_attn.q_proj", "attn.c_attn", kQkv, true},
                               {"self_attn.k_proj", "attn.c_attn", kQkv, true},
                               {"self_attn.v_proj", "attn.c_attn", kQkv, true},
                               {"self_attn.o_proj", "attn.c_proj", kNone, true},
                               {"mlp.up_proj", "mlp.c_fc", kNone, true},
                               {"mlp.down_proj", "mlp.c_proj", kNone, true}}};

const NameTable kBloomNames = {"transformer.",
                               "transformer.h.",
                               {{"embed_tokens", "word_embeddings"},
                                {"embed_norm", "word_embeddings_layernorm"},
                                {"norm", "ln_f"},
                                {"self_attn.q_proj", "self_attention.query_key_value", kQkvPerGroup},
                                {"self_attn.k_proj", "self_attention.query_key_value", kQkvPerGroup},
                                {"self_attn.v_proj", "self_attention.query_key_value", kQkvPerGroup},
                                {"self_attn.o_proj", "self_attention.dense"},
                                {"mlp.up_proj", "mlp.dense_h_to_4h"},
                                {"mlp.down_proj", "mlp.dense_4h_to_h"}}};

// Falcon's names are BLOOM's, but for the two norms of a parallel block.
const NameTable kParallelFalconNames = [] {
  NameTable table = kBloomNames;
  table.names.push_back({"input_layernorm", "ln_attn"});
  table.names.push_back({"post_attention_layernorm", "ln_mlp"});
  return table;
}();

const NameTable& table_of(const HfModel& model) {
  if (model.type == "phi3") return kPhi3Names;
  if (model.type == "starcoder2") return kStarcoder2Names;
  if (model.type == "gpt2") return kGpt2Names;
  if (model.type == "bloom") return kBloomNames;
  if (model.type == "falcon") return model.config.block == "parallel" ? kParallelFalconNames : kBloomNames;
  return kLlamaNames;
}

const Name* find(const NameTable& table, const std::string& ours) {
  for (const Name& name : table.names) {
    if (name.ours == ours) return &name;
  }
  return nullptr;
}

// A group holds `heads` query heads, then `kv` key heads, then `kv` value heads.
void place_in_qkv(const std::string& ours, int64_t head_dim, int64_t heads, int64_t kv, HfPlace* place) {
  place->group_rows = (heads + 2 * kv) * head_dim;
  if (ours == "self_attn.k_proj") place->begin = heads * head_dim;
  if (ours == "self_attn.v_proj") place->begin = (heads + kv) * head_dim;
}

}  // namespace

HfNames::HfNames(const HfModel& model) : table_(&table_of(model)), model_(model.config) {}

HfPlace HfNames::place(const std::string& name, int64_t rows) const {
  static const std::string kModel = "model.", kLayers = "model.layers.";
  HfPlace place{.name = name, .group_rows = rows};
  if (!name.starts_with(kModel)) return place;
  std::string prefix = table_->model;
  size_t begin = kModel.size();
  if (name.starts_with(kLayers)) {  // "model.layers.7." comes before the module
    begin = name.find('.', kLayers.size()) + 1;
    prefix = table_->layers + name.substr(kLayers.size(), begin - kLayers.size());
  }
  const size_t end = name.rfind('.');  // of ".weight" or ".bias"
  if (end < begin) {                   // a param of the layer itself, which no table knows
    place.name = prefix + name.substr(begin);
    return place;
  }
  const std::string ours = name.substr(begin, end - begin);
  const Name* theirs = find(*table_, ours);
  place.name = prefix + (theirs == nullptr ? ours : theirs->theirs) + name.substr(end);
  if (theirs == nullptr) return place;
  place.transposed = theirs->transposed && name.ends_with(".weight");
  const int64_t heads = model_.n_heads, kv = model_.n_kv_heads;
  if (theirs->fusion == kQkv) place_in_qkv(ours, model_.head_dim, heads, kv, &place);
  if (theirs->fusion == kQkvPerGroup) {
    place.groups = kv;
    place_in_qkv(ours, model_.head_dim, heads / kv, 1, &place);
  }
  if (theirs->fusion == kGateUp) {
    place.group_rows = 2 * rows;
    if (ours == "mlp.up_proj") place.begin = rows;
  }
  return place;
}

}  // namespace weft
