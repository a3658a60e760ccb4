#include "weft/data/indexed_dataset.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>

#include "weft/base/error.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the files are read and written as they lie in memory");

constexpr size_t kBufferBytes = 1 << 20;

template <class T>
T load(std::span<const std::byte> bytes, uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void store(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

IndexedDataset::IndexedDataset(const std::string& prefix, Env& env) : prefix_(prefix) {
  for (const char* suffix : {".bin", ".idx"}) {
    if (env.exists(prefix + suffix)) continue;
    fail(
        "{}{} does not exist: a dataset is named by the prefix of its .bin and .idx, which `weft data build` "
        "writes",
        prefix, suffix);
  }
  bin_ = env.map(prefix + ".bin");
  idx_ = env.map(prefix + ".idx");
  read_header();
  check_sequences();
  check_documents();
}

void IndexedDataset::read_header() {
  const auto bytes = idx_->bytes();
  const std::string where = prefix_ + ".idx";
  if (bytes.size() < megatron::kHeaderBytes) {
    fail("{}: truncated: the header takes {} bytes, the file has {}", where, megatron::kHeaderBytes,
         bytes.size());
  }
  if (std::memcmp(bytes.data(), megatron::kMagic.data(), megatron::kMagic.size()) != 0) {
    fail("{}: not a Megatron index: it does not start with MMIDIDX", where);
  }
  const auto version = load<uint64_t>(bytes, 9);
  if (version != megatron::kVersion)
    fail("{}: version {}, only {} is known", where, version, megatron::kVersion);
  const auto dtype = load<uint8_t>(bytes, 17);
  if (dtype != megatron::kInt32 && dtype != megatron::kUint16) {
    fail("{}: dtype code {}, tokens are {} (int32) or {} (uint16)", where, dtype, megatron::kInt32,
         megatron::kUint16);
  }
  const auto sequences = load<uint64_t>(bytes, 18), document_indices = load<uint64_t>(bytes, 26);
  constexpr uint64_t kSane = uint64_t(1) << 56;  // keeps the next sum within 64 bits
  if (sequences > kSane || document_indices > kSane || document_indices == 0) {
    fail("{}: corrupt header: {} sequences, {} document indices", where, sequences, document_indices);
  }
  const uint64_t expected = megatron::kHeaderBytes + sequences * 12 + document_indices * 8;
  if (bytes.size() != expected) {
    fail("{}: {}: {} sequences and {} document indices take {} bytes, the file has {}", where,
         bytes.size() < expected ? "truncated" : "too long", sequences, document_indices, expected,
         bytes.size());
  }
  token_bytes_ = dtype == megatron::kInt32 ? 4 : 2;
  sequences_ = int64_t(sequences);
  documents_ = int64_t(document_indices) - 1;
}

void IndexedDataset::check_sequences() {
  int64_t expected = 0;
  for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
    if (length(sequence) < 0) fail("{}.idx: sequence {} has length {}", prefix_, sequence, length(sequence));
    if (offset(sequence) != expected) {
      fail("{}.idx: sequence {} is at byte {} of the .bin, but the ones before it end at {}", prefix_,
           sequence, offset(sequence), expected);
    }
    expected += length(sequence) * token_bytes_;
  }
  const auto actual = int64_t(bin_->bytes().size());
  if (actual != expected) {
    fail("{}.bin: {}: the index expects {} bytes, the file has {}", prefix_,
         actual < expected ? "truncated" : "too long, or of another index", expected, actual);
  }
  tokens_ = expected / token_bytes_;
}

void IndexedDataset::check_documents() const {
  for (int64_t document = 0; document <= documents_; ++document) {
    const int64_t first = first_sequence(document), least = document == 0 ? 0 : first_sequence(document - 1);
    if (first < least || first > sequences_ || (document == 0 && first != 0)) {
      fail("{}.idx: document {} starts at sequence {}: expected {}", prefix_, document, first,
           document == 0 ? "0" : fmt::format("{} to {}", least, sequences_));
    }
  }
  if (first_sequence(documents_) != sequences_) {
    fail("{}.idx: the documents end at sequence {}, but there are {}", prefix_, first_sequence(documents_),
         sequences_);
  }
}

int64_t IndexedDataset::length(int64_t sequence) const {
  return load<int32_t>(idx_->bytes(), megatron::kHeaderBytes + uint64_t(sequence) * 4);
}

int64_t IndexedDataset::offset(int64_t sequence) const {
  return load<int64_t>(idx_->bytes(),
                       megatron::kHeaderBytes + uint64_t(sequences_) * 4 + uint64_t(sequence) * 8);
}

int64_t IndexedDataset::first_sequence(int64_t document) const {
  return load<int64_t>(idx_->bytes(),
                       megatron::kHeaderBytes + uint64_t(sequences_) * 12 + uint64_t(document) * 8);
}

int64_t IndexedDataset::document_begin(int64_t document) const {
  WEFT_ASSERT(document >= 0 && document <= documents_, "document {} of {}", document, documents_);
  const int64_t sequence = first_sequence(document);
  return sequence == sequences_ ? tokens_ : offset(sequence) / token_bytes_;
}

void IndexedDataset::read(int64_t first, std::span<int64_t> out) const {
  WEFT_ASSERT(first >= 0 && first + int64_t(out.size()) <= tokens_, "tokens {} + {} of {}", first, out.size(),
              tokens_);
  const auto bytes = bin_->bytes();
  uint64_t at = uint64_t(first * token_bytes_);
  for (int64_t& token : out) {
    token = token_bytes_ == 2 ? int64_t(load<uint16_t>(bytes, at)) : int64_t(load<int32_t>(bytes, at));
    at += uint64_t(token_bytes_);
  }
}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, int64_t vocab_size, Env& env)
    : env_(env), prefix_(prefix), vocab_size_(vocab_size), small_(vocab_size < megatron::kSmallVocabulary) {
  bin_ = env_.create(bin_path() + ".tmp");
  idx_ = env_.create(idx_path() + ".tmp");
}

IndexedDatasetWriter::~IndexedDatasetWriter() {
  if (finished_) return;
  bin_.reset();
  idx_.reset();
  for (const std::string& path : {bin_path(), idx_path()}) {
    try {
      env_.remove_all(path + ".tmp");
    } catch (const std::exception&) {  // what went wrong first is already on its way up
    }
  }
}

void IndexedDatasetWriter::append(std::span<const int32_t> ids) {
  for (int32_t id : ids) {
    if (id < 0 || id >= vocab_size_)
      fail("{}: token id {} is outside the vocabulary of {}", prefix_, id, vocab_size_);
    small_ ? store(&buffer_, uint16_t(id)) : store(&buffer_, id);
    if (buffer_.size() >= kBufferBytes) flush();
  }
  document_tokens_ += int64_t(ids.size());
  tokens_ += int64_t(ids.size());
  if (document_tokens_ > std::numeric_limits<int32_t>::max()) {
    fail("{}: document {} has more than 2^31 - 1 tokens: split its text into several files", prefix_,
         documents());
  }
}

void IndexedDatasetWriter::end_document() {
  if (document_tokens_ > 0) lengths_.push_back(int32_t(document_tokens_));
  document_indices_.push_back(int64_t(lengths_.size()));
  document_tokens_ = 0;
}

void IndexedDatasetWriter::finish() {
  WEFT_ASSERT(document_tokens_ == 0 && !finished_, "finish() inside a document, or twice");
  flush();
  idx_->append(index());
  for (WritableFile* file : {bin_.get(), idx_.get()}) {
    file->sync();
    file->close();
  }
  env_.rename(bin_path() + ".tmp", bin_path());
  env_.rename(idx_path() + ".tmp", idx_path());
  finished_ = true;
  env_.sync_dir(std::filesystem::path(prefix_).parent_path().string());
}

void IndexedDatasetWriter::flush() {
  bin_->append(buffer_);
  buffer_.clear();
}

std::string IndexedDatasetWriter::index() const {
  std::string out(megatron::kMagic);
  store(&out, megatron::kVersion);
  store(&out, small_ ? megatron::kUint16 : megatron::kInt32);
  store(&out, uint64_t(lengths_.size()));
  store(&out, uint64_t(document_indices_.size()));
  for (int32_t length : lengths_) store(&out, length);
  int64_t offset = 0;
  for (int32_t length : lengths_) {
    store(&out, offset);
    offset += int64_t(length) * (small_ ? 2 : 4);
  }
  for (int64_t index : document_indices_) store(&out, index);
  return out;
}

}  // namespace weft
