// Errors. A user's mistake (config, data, files, machine) is an Error whose message names the place
// and the remedy; a broken invariant of our own is WEFT_ASSERT.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace weft {

/// What a user can mend. what() is shown as it is, without a stack.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace weft

/// Programmer errors only: never reachable by user input.
#define WEFT_ASSERT(condition, ...)                                                              \
  do {                                                                                           \
    if (!(condition))                                                                            \
      throw std::logic_error(fmt::format("{}:{}: assertion `{}` failed: ", __FILE__, __LINE__,   \
                                         #condition) +                                           \
                             fmt::format(__VA_ARGS__));                                          \
  } while (false)
