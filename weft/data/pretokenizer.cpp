#include "weft/data/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <cctype>
#include <cstring>

#include <pcre2.h>

#include "weft/base/error.h"
#include "weft/data/utf8.h"

namespace weft {

const char* const kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// Rewrites an Oniguruma pattern for PCRE2, or fails on what the two read differently.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    if (utf8_prefix(in_) != in_.size()) refuse("invalid UTF-8");
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        bracket_class();
      } else if (c == '(') {
        open_group();
      } else if (c == '{') {
        interval();
      } else if (c == '^' || c == '$' || c == '.') {
        refuse(std::string(1, c));
      } else {
        out_ += in_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& construct) {
    fail(
        "{}: pre_tokenizer pattern `{}`: `{}` is not supported (supported: literals, classes, "
        "\\s \\S \\d \\D \\r \\n \\t, \\p{{..}} of general categories, groups (?: (?i: (?= (?! (?<= (?<! "
        "(?>, "
        "alternation and repetition)",
        where_, in_, construct);
  }

  char peek(size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  void escape() {
    const char c = peek(1);
    if (c == 's' || c == 'S') {
      // PCRE2's own \s also matches U+180E, which has not been white space since Unicode 6.3.
      out_ += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      at_ += 2;
    } else if (c == 'p' || c == 'P') {
      property();
    } else if (std::strchr("dDrnt", c) != nullptr ? c != '\0' : std::ispunct(uint8_t(c))) {
      out_ += in_.substr(at_, 2);
      at_ += 2;
    } else {
      refuse(std::string(in_.substr(at_, 2)));
    }
  }

  void property() {
    const size_t close = in_.find('}', at_);
    const size_t length = close == std::string_view::npos ? 2 : close + 1 - at_;
    const std::string_view text = in_.substr(at_, length);
    // Scripts are left out: PCRE2 reads them as script extensions.
    const bool category = (length == 5 || length == 6) && text[2] == '{' && std::strchr("LMNPSZC", text[3]) &&
                          (length == 5 || std::islower(uint8_t(text[4])));
    if (!category) refuse(std::string(text));
    out_ += text;
    at_ += length;
  }

  void bracket_class() {
    out_ += in_[at_++];
    if (peek(0) == '^') out_ += in_[at_++];
    if (peek(0) == ']') refuse("[]");
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '\\') {
        escape();
      } else if (in_[at_] == '[' || (in_[at_] == '&' && peek(1) == '&')) {
        refuse(in_[at_] == '[' ? "[ inside a class" : "&&");
      } else {
        out_ += in_[at_++];
      }
    }
    if (at_ == in_.size()) refuse("unclosed [");
    out_ += in_[at_++];
  }

  void open_group() {
    if (peek(1) == '*') refuse("(*");
    if (peek(1) == '?') {
      static constexpr std::string_view kKnown[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
      bool known = false;
      for (std::string_view prefix : kKnown) {
        if (!in_.substr(at_).starts_with(prefix)) continue;
        out_ += prefix;
        at_ += prefix.size();
        known = true;
        break;
      }
      if (!known) refuse(std::string(in_.substr(at_, 4)));
    } else {
      out_ += in_[at_++];
    }
  }

  // {n}, {n,}, {n,m}. A `+` after it is possessive in PCRE2 but a second repetition in Oniguruma.
  void interval() {
    const size_t close = in_.find('}', at_);
    const std::string_view text = in_.substr(at_, close == std::string_view::npos ? close : close + 1 - at_);
    const bool digits = text.size() > 2 && std::isdigit(uint8_t(text[1])) &&
                        text.substr(1).find_first_not_of("0123456789,}") == std::string_view::npos;
    if (!digits || text.back() != '}') refuse(std::string(text));
    out_ += text;
    at_ += text.size();
    if (peek(0) == '+') refuse(std::string(text) + "+");
  }

  std::string_view in_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
};

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct PreTokenizer::Regex {
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;

  Regex(const std::string& pattern, const std::string& where) {
    const std::string translated = Translator(pattern, where).run();
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                         PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    if (!code) fail("{}: pre_tokenizer pattern `{}` is not valid: {}", where, pattern, message_of(error));
    pcre2_jit_compile(code,
                      PCRE2_JIT_COMPLETE);  // without JIT (rare architectures) the interpreter does the same
    match = pcre2_match_data_create_from_pattern(code, nullptr);
    context = pcre2_match_context_create(nullptr);
    stack = pcre2_jit_stack_create(32 << 10, 32 << 20, nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Regex() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  /// The next non-empty match at or after `from`; false if there is none.
  bool find(std::string_view text, size_t from, size_t* begin, size_t* end) const {
    const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match, context);
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0)
      fail("pre-tokenizer: a pattern gave up on a text of {} bytes: {}", text.size(), message_of(found));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match);
    *begin = bounds[0], *end = bounds[1];
    return true;
  }
};

PreTokenizer::PreTokenizer(const std::vector<std::string>& patterns, const std::string& where) {
  for (const std::string& pattern : patterns) stages_.push_back(std::make_unique<Regex>(pattern, where));
}
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

void PreTokenizer::split(std::string_view text, const std::function<void(std::string_view)>& sink) const {
  while (!text.empty()) {
    const size_t valid = utf8_prefix(text);
    if (valid > 0) split_from(0, text.substr(0, valid), sink);
    size_t end = valid;
    while (end < text.size() && utf8_sequence(text.substr(end)) == 0) ++end;
    if (end > valid) sink(text.substr(valid, end - valid));
    text.remove_prefix(end);
  }
}

void PreTokenizer::split_from(size_t stage, std::string_view text,
                              const std::function<void(std::string_view)>& sink) const {
  if (stage == stages_.size()) return sink(text);
  size_t at = 0, begin = 0, end = 0;
  while (at < text.size() && stages_[stage]->find(text, at, &begin, &end)) {
    if (begin > at) split_from(stage + 1, text.substr(at, begin - at), sink);
    split_from(stage + 1, text.substr(begin, end - begin), sink);
    at = end;
  }
  if (at < text.size()) split_from(stage + 1, text.substr(at), sink);
}

}  // namespace weft
