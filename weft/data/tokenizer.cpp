#include "weft/data/tokenizer.h"

#include <algorithm>
#include <queue>

#include "weft/base/error.h"
#include "weft/data/byte_level.h"
#include "weft/data/utf8.h"

namespace weft {
namespace {

// Words come back by Zipf's law: these few hold nearly all of a text.
constexpr size_t kMaxCachedPieces = 1 << 18;
constexpr size_t kMaxCachedBytes = 64;

uint64_t pair_key(int32_t left, int32_t right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }

}  // namespace

Tokenizer Tokenizer::load(const std::string& path, Env& env) { return parse(env.read(path), path); }

Tokenizer Tokenizer::parse(std::string_view json, const std::string& where) {
  return Tokenizer(parse_tokenizer_json(json, where), where);
}

Tokenizer::Tokenizer(TokenizerSpec spec, const std::string& where)
    : where_(where), pretokenizer_(spec.patterns, where), ignore_merges_(spec.ignore_merges) {
  add_vocab(spec, where);
  add_merges(spec, where);
  for (AddedToken& token : spec.added) {
    added_[token.normalized][uint8_t(token.content[0])].push_back(std::move(token));
  }
  for (auto& pass : added_) {
    for (auto& tokens : pass) {
      std::ranges::stable_sort(tokens, std::ranges::greater(),
                               [](const AddedToken& t) { return t.content.size(); });
    }
  }
}

void Tokenizer::add_vocab(const TokenizerSpec& spec, const std::string& where) {
  ids_ = spec.vocab;
  for (const AddedToken& token : spec.added) {
    const auto [known, inserted] = ids_.try_emplace(token.content, token.id);
    if (known->second != token.id) {
      fail("{}: added token \"{}\" has id {}, but {} in the vocabulary", where, token.content, token.id,
           known->second);
    }
    const bool in_vocab = spec.vocab.contains(token.content);
    if (in_vocab && from_byte_level(token.content).value_or(token.content) != token.content) {
      fail("{}: added token \"{}\" is also a token of the vocabulary, where it stands for other bytes", where,
           token.content);
    }
  }
  // A lying id must not make us allocate: real vocabularies have few holes.
  const int64_t limit = 2 * int64_t(ids_.size());
  for (const auto& [token, id] : ids_) {
    if (id < 0 || id >= limit) {
      fail("{}: token \"{}\" has id {}, out of range for a vocabulary of {} tokens", where, token, id,
           ids_.size());
    }
    if (size_t(id) >= bytes_.size()) bytes_.resize(size_t(id) + 1);
    if (bytes_[id]) fail("{}: two tokens have id {}: \"{}\" is one of them", where, id, token);
    bytes_[id] = from_byte_level(token).value_or(token);
  }
  for (const AddedToken& token : spec.added) bytes_[token.id] = token.content;

  byte_ids_.fill(-1);
  for (const auto& [token, id] : spec.vocab) {
    const auto bytes = from_byte_level(token);
    if (!bytes) continue;
    if (bytes->size() == 1) byte_ids_[uint8_t((*bytes)[0])] = id;
    if (ignore_merges_) by_bytes_[*bytes] = id;
  }
}

void Tokenizer::add_merges(const TokenizerSpec& spec, const std::string& where) {
  const auto id = [&](const std::string& token, size_t rank) {
    const auto found = spec.vocab.find(token);
    if (found == spec.vocab.end())
      fail("{}: merge {} needs \"{}\", which is not in the vocabulary", where, rank, token);
    return found->second;
  };
  merges_.reserve(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    merges_[pair_key(id(left, rank), id(right, rank))] = {int32_t(rank), id(left + right, rank)};
  }
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string& Tokenizer::bytes_of(int32_t id) const {
  if (id < 0 || id >= vocab_size() || !bytes_[id]) {
    fail("{}: id {} has no token (the vocabulary has ids 0 to {})", where_, id, vocab_size() - 1);
  }
  return *bytes_[id];
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (int32_t id : ids) bytes += bytes_of(id);
  return bytes;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<int32_t> ids;
  encode(text, special, [&](std::span<const int32_t> piece_ids, std::string_view) {
    ids.insert(ids.end(), piece_ids.begin(), piece_ids.end());
  });
  return ids;
}

void Tokenizer::encode(std::string_view text, SpecialTokens special, const PieceSink& sink) const {
  encode_between(0, text, special, sink);
}

// Cuts out the added tokens of one pass; what lies between goes to the next pass, at last to the
// pre-tokenizer.
void Tokenizer::encode_between(size_t pass, std::string_view text, SpecialTokens special,
                               const PieceSink& sink) const {
  if (text.empty()) return;
  if (pass == added_.size())
    return pretokenizer_.split(text, [&](std::string_view piece) { encode_piece(piece, sink); });
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const AddedToken* token = added_token_at(pass, text.substr(at), special);
    if (!token) continue;
    encode_between(pass + 1, text.substr(begin, at - begin), special, sink);
    sink(std::span(&token->id, 1), text.substr(at, token->content.size()));
    begin = at + token->content.size();
    at = begin - 1;
  }
  encode_between(pass + 1, text.substr(begin), special, sink);
}

const AddedToken* Tokenizer::added_token_at(size_t pass, std::string_view text, SpecialTokens special) const {
  for (const AddedToken& token : added_[pass][uint8_t(text[0])]) {
    if (token.special && special == SpecialTokens::kAsText) continue;
    if (text.starts_with(token.content)) return &token;
  }
  return nullptr;
}

void Tokenizer::encode_piece(std::string_view piece, const PieceSink& sink) const {
  if (piece.size() > kMaxCachedBytes) return sink(merge_piece(piece), piece);
  static thread_local std::string key;  // a lookup without allocation
  key.assign(piece);
  auto found = cache_.find(key);
  if (found == cache_.end()) {
    if (cache_.size() == kMaxCachedPieces) cache_.clear();
    found = cache_.emplace(key, merge_piece(piece)).first;
  }
  sink(found->second, piece);
}

const Tokenizer::Merge* Tokenizer::find_merge(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<int32_t> Tokenizer::merge_piece(std::string_view piece) const {
  if (ignore_merges_) {
    const auto whole = by_bytes_.find(std::string(piece));
    if (whole != by_bytes_.end()) return {whole->second};
  }
  // Symbols form a linked list over the piece's bytes; candidates wait in a heap by (rank, position), so that
  // a piece of n bytes costs n log n. A merge makes candidates stale: they are recognised when they surface.
  const size_t n = piece.size();
  std::vector<int32_t> symbol(n);
  std::vector<size_t> next(n), previous(n);
  for (size_t at = 0; at < n; ++at) {
    symbol[at] = byte_ids_[uint8_t(piece[at])];
    if (symbol[at] < 0) fail("{}: byte 0x{:02X} has no token in this vocabulary", where_, uint8_t(piece[at]));
    next[at] = at + 1, previous[at] = at - 1;
  }
  struct Candidate {
    int32_t rank, id;
    size_t at;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](size_t at) {
    if (at >= n || next[at] >= n) return;
    if (const Merge* merge = find_merge(symbol[at], symbol[next[at]]))
      candidates.push({merge->rank, merge->id, at});
  };
  for (size_t at = 0; at < n; ++at) consider(at);
  constexpr int32_t kDead = -1;
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    const size_t left = best.at;
    if (symbol[left] == kDead || next[left] >= n) continue;
    const size_t right = next[left];
    const Merge* merge = find_merge(symbol[left], symbol[right]);
    if (!merge || merge->rank != best.rank) continue;
    symbol[left] = best.id, symbol[right] = kDead;
    next[left] = next[right];
    if (next[left] < n) previous[next[left]] = left;
    consider(previous[left]);  // wraps to SIZE_MAX before the first symbol: refused by consider
    consider(left);
  }
  std::erase(symbol, kDead);
  return symbol;
}

std::string StreamDecoder::push(int32_t id) {
  pending_ += tokenizer_.bytes_of(id);
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    bool incomplete = false;
    const size_t length = utf8_sequence(rest, &incomplete);
    if (incomplete) break;
    text += length > 0 ? rest.substr(0, length) : "\uFFFD";
    rest.remove_prefix(std::max<size_t>(length, 1));
  }
  pending_ = std::string(rest);
  return text;
}

std::string StreamDecoder::finish() { return std::exchange(pending_, {}).empty() ? "" : "\uFFFD"; }

}  // namespace weft
