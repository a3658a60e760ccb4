// Cuts text into the pieces that BPE never merges across: a list of regular expressions, each applied to the
// pieces of the one before; its matches and the gaps between them are the new pieces (the "Isolated"
// behaviour of tokenizer.json). No byte is lost: the pieces, joined, are the text.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// The regex of GPT-2, which ByteLevel{use_regex} stands for.
extern const char* const kGpt2Regex;

class PreTokenizer {
 public:
  /// The patterns are in the dialect of tokenizer.json (Oniguruma). They run on PCRE2, so only constructs
  /// that mean the same in both are taken; others throw Error, naming `where`, the pattern and the construct.
  PreTokenizer(const std::vector<std::string>& patterns, const std::string& where);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  /// Calls `sink` with each piece of `text`, in order; the views point into `text`. Any bytes are allowed: a
  /// run of bytes that are not UTF-8 is a piece of its own. One thread at a time.
  void split(std::string_view text, const std::function<void(std::string_view)>& sink) const;

 private:
  struct Regex;
  void split_from(size_t stage, std::string_view text,
                  const std::function<void(std::string_view)>& sink) const;
  std::vector<std::unique_ptr<Regex>> stages_;
};

}  // namespace weft
