// Reading tokenizer.json: every key either has the meaning that Tokenizer implements, or is refused.
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/data/byte_level.h"
#include "weft/data/tokenizer.h"

namespace weft {
namespace {

using Json = nlohmann::json;

class Reader {
 public:
  Reader(std::string_view json, const std::string& where) : where_(where), root_(parse_json(json, where)) {
    if (!root_.is_object())
      fail("{}: not a tokenizer.json: expected an object with model, added_tokens, …", where_);
  }

  TokenizerSpec read() {
    for (const char* key : {"truncation", "padding"}) expect_null(key);
    read_normalizer();
    read_pre_tokenizer(get(root_, "pre_tokenizer"), "pre_tokenizer", /*last=*/true);
    read_post_processor();
    const Json& decoder = get(root_, "decoder");
    if (type_of(decoder) != "ByteLevel") refuse("decoder", decoder, "ByteLevel");
    read_model();
    read_added_tokens();
    return std::move(spec_);
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const Json& value, const std::string& supported) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 120) text = text.substr(0, 120) + "…";
    fail("{}: {} is {}; supported: {}", where_, key, text, supported);
  }

  /// value["type"], or "" if it has none.
  static std::string type_of(const Json& value) {
    const Json& type = get(value, "type");
    return type.is_string() ? type.get<std::string>() : "";
  }

  /// object[key], or null if it is absent.
  static const Json& get(const Json& object, const char* key) {
    static const Json null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
  }

  void expect_null(const char* key) {
    const Json& value = get(root_, key);
    if (!value.is_null()) refuse(key, value, "null");
  }

  /// The boolean `key` of `object`, or `otherwise` if it is absent or null.
  bool flag(const Json& object, const std::string& path, const char* key, bool otherwise) {
    const Json& value = get(object, key);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) refuse(path + "." + key, value, "true or false");
    return value;
  }

  const std::string& string(const Json& value, const std::string& key) {
    if (!value.is_string()) refuse(key, value, "a string");
    return value.get_ref<const std::string&>();
  }

  int32_t id(const Json& value, const std::string& key) {
    if (!value.is_number_integer()) refuse(key, value, "an integer id");
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t(INT32_MAX);
    if (!fits) refuse(key, value, "ids from 0 to 2^31 - 1");
    return value;
  }

  void read_normalizer() {
    const Json& normalizer = get(root_, "normalizer");
    const bool empty_sequence =
        type_of(normalizer) == "Sequence" && get(normalizer, "normalizers") == Json::array();
    if (!normalizer.is_null() && !empty_sequence) refuse("normalizer", normalizer, "null");
  }

  // ByteLevel changes offsets only; anything else adds tokens.
  void read_post_processor() {
    const Json& processor = get(root_, "post_processor");
    if (!processor.is_null() && type_of(processor) != "ByteLevel") {
      refuse("post_processor", processor, "null or ByteLevel");
    }
  }

  // ByteLevel must come last: what follows it would see its characters in place of the text's.
  void read_pre_tokenizer(const Json& node, const std::string& path, bool last) {
    const std::string type = type_of(node);
    if (type == "Sequence" && last && get(node, "pretokenizers").is_array()) {
      const Json& list = node["pretokenizers"];
      if (list.empty()) refuse(path, node, "a sequence that ends in ByteLevel");
      for (size_t at = 0; at < list.size(); ++at) {
        if (type_of(list[at]) == "Sequence") refuse(path, node, "no sequence inside a sequence");
        read_pre_tokenizer(list[at], fmt::format("{}.pretokenizers[{}]", path, at), at + 1 == list.size());
      }
    } else if (type == "ByteLevel" && last) {
      if (flag(node, path, "add_prefix_space", true)) refuse(path + ".add_prefix_space", true, "false");
      if (flag(node, path, "use_regex", true)) spec_.patterns.push_back(kGpt2Regex);
    } else if (type == "Split" && !last) {
      read_split(node, path);
    } else if (type == "Digits" && !last) {
      spec_.patterns.push_back(flag(node, path, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    } else {
      refuse(path, node, "ByteLevel, or a Sequence of Split and Digits that ends in ByteLevel");
    }
  }

  void read_split(const Json& node, const std::string& path) {
    const Json &pattern = get(node, "pattern"), &behavior = get(node, "behavior");
    if (!pattern.is_object() || !pattern.contains("Regex"))
      refuse(path + ".pattern", pattern, "{\"Regex\": …}");
    if (behavior != "Isolated") refuse(path + ".behavior", behavior, "\"Isolated\"");
    if (flag(node, path, "invert", false)) refuse(path + ".invert", true, "false");
    spec_.patterns.push_back(string(pattern["Regex"], path + ".pattern.Regex"));
  }

  void read_model() {
    const Json& model = get(root_, "model");
    const std::string type = type_of(model);
    // Early files have no type.
    if (!model.is_object() || (type != "BPE" && model.contains("type"))) refuse("model", model, "type BPE");
    const Json& dropout = get(model, "dropout");
    if (!dropout.is_null() && dropout != 0) refuse("model.dropout", dropout, "null or 0");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& affix = get(model, key);
      if (!affix.is_null() && affix != "") refuse(std::string("model.") + key, affix, "null or \"\"");
    }
    if (flag(model, "model", "byte_fallback", false)) refuse("model.byte_fallback", true, "false");
    spec_.ignore_merges = flag(model, "model", "ignore_merges", false);
    read_vocab(get(model, "vocab"));
    read_merges(get(model, "merges"));
    // With a token for every byte nothing is ever unknown, whatever unk_token says.
    const Json& unknown = get(model, "unk_token");
    if (!unknown.is_null() && unknown != "") {
      for (int byte = 0; byte < 256; ++byte) {
        if (!spec_.vocab.contains(to_byte_level(std::string(1, char(byte))))) {
          refuse("model.unk_token", unknown, "null, as the vocabulary lacks some bytes");
        }
      }
    }
  }

  void read_vocab(const Json& vocab) {
    if (!vocab.is_object() || vocab.empty()) refuse("model.vocab", vocab, "an object of token: id");
    spec_.vocab.reserve(vocab.size());
    for (const auto& [token, value] : vocab.items())
      spec_.vocab[token] = id(value, "model.vocab[\"" + token + "\"]");
  }

  void read_merges(const Json& merges) {
    if (!merges.is_array()) refuse("model.merges", merges, "an array of \"a b\" or [\"a\", \"b\"]");
    spec_.merges.reserve(merges.size());
    for (const Json& merge : merges) {
      const auto key = [&] { return fmt::format("model.merges[{}]", spec_.merges.size()); };
      if (merge.is_array() && merge.size() == 2) {
        spec_.merges.emplace_back(string(merge[0], key()), string(merge[1], key()));
        continue;
      }
      const std::string& text = string(merge, key());
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        refuse(key(), merge, "\"a b\" or [\"a\", \"b\"]");
      }
      spec_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
  }

  void read_added_tokens() {
    const Json& list = get(root_, "added_tokens");
    if (list.is_null()) return;
    if (!list.is_array()) refuse("added_tokens", list, "an array");
    for (size_t at = 0; at < list.size(); ++at) {
      const std::string path = fmt::format("added_tokens[{}]", at);
      const Json& entry = list[at];
      if (!entry.is_object()) refuse(path, entry, "an object with id and content");
      for (const char* key : {"single_word", "lstrip", "rstrip"}) {
        if (flag(entry, path, key, false)) refuse(path + "." + key, true, "false");
      }
      AddedToken token;
      token.content = string(get(entry, "content"), path + ".content");
      if (token.content.empty()) refuse(path + ".content", "", "text");
      token.id = id(get(entry, "id"), path + ".id");
      token.special = flag(entry, path, "special", false);
      token.normalized = flag(entry, path, "normalized", !token.special);
      spec_.added.push_back(std::move(token));
    }
  }

  const std::string& where_;
  Json root_;
  TokenizerSpec spec_;
};

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view json, const std::string& where) {
  return Reader(json, where).read();
}

}  // namespace weft
