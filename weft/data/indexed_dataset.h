// Tokenised documents on disk, in Megatron-LM's format: PREFIX.bin holds the tokens of all documents back to
// back, PREFIX.idx says where each sequence and each document lies. All little endian:
//
//   .idx   9 bytes   magic
//          u64       version = 1
//          u8        dtype code of the tokens in .bin
//          u64       S, number of sequences
//          u64       D, number of documents + 1
//          i32[S]    length of each sequence, tokens
//          i64[S]    offset of each sequence in .bin, bytes
//          i64[D]    first sequence of each document; the last entry is S
//
// The arrays start at byte 34, so none is aligned. weft writes one sequence per document, none for an empty
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/env.h"

namespace weft {

namespace megatron {
inline constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
inline constexpr uint64_t kVersion = 1;
inline constexpr uint8_t kInt32 = 4, kUint16 = 8;  // dtype codes; the format knows more, which hold no tokens
inline constexpr int64_t kSmallVocabulary = 65500;  // below it tokens are kUint16
inline constexpr uint64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;
}  // namespace megatron

/// One opened pair of files, memory-mapped.
class IndexedDataset {
 public:
  /// Checks the whole index against itself and against the size of .bin before anything is used. Throws Error
  /// with the file, what was expected and what is there.
  explicit IndexedDataset(const std::string& prefix, Env& env = Env::system());

  const std::string& prefix() const { return prefix_; }
  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }
  /// Position of the document's first token among all tokens; that of document `documents()` is the end.
  int64_t document_begin(int64_t document) const;
  /// Copies the tokens [first, first + out.size()), which must exist.
  void read(int64_t first, std::span<int64_t> out) const;

 private:
  void read_header();
  void check_sequences();
  void check_documents() const;
  int64_t length(int64_t sequence) const;
  int64_t offset(int64_t sequence) const;  // bytes
  int64_t first_sequence(int64_t document) const;

  std::string prefix_;
  std::unique_ptr<MappedFile> bin_, idx_;
  int64_t token_bytes_ = 0, sequences_ = 0, documents_ = 0, tokens_ = 0;
};

/// Writes a pair of files token by token. They get their names only in finish(), .bin first, so that a run
/// that dies leaves an earlier pair as it was; should it die between the two renames, the reader sees that
/// the sizes disagree.
class IndexedDatasetWriter {
 public:
  /// Creates the temporary files, and so finds out at once whether the place can be written.
  IndexedDatasetWriter(const std::string& prefix, int64_t vocab_size, Env& env = Env::system());
  ~IndexedDatasetWriter();  // without finish(): removes the temporary files

  /// Adds tokens to the current document. Throws Error for ids outside [0, vocab_size).
  void append(std::span<const int32_t> ids);
  void end_document();
  void finish();

  int64_t documents() const { return int64_t(document_indices_.size()) - 1; }
  int64_t tokens() const { return tokens_; }
  std::string bin_path() const { return prefix_ + ".bin"; }
  std::string idx_path() const { return prefix_ + ".idx"; }

 private:
  void flush();
  std::string index() const;

  Env& env_;
  std::string prefix_;
  int64_t vocab_size_;
  bool small_;  // uint16
  std::unique_ptr<WritableFile> bin_, idx_;
  std::string buffer_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> document_indices_ = {0};
  int64_t document_tokens_ = 0, tokens_ = 0;
  bool finished_ = false;
};

}  // namespace weft
