#include "weft/commands/command.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "weft/base/error.h"

namespace weft {

int guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    fmt::print(stderr, "weft: error: {}\n", error.what());
    return 1;
  } catch (const c10::Error& error) {
    fmt::print(stderr, "weft: internal error: {}\n", error.what_without_backtrace());
    return 3;
  } catch (const std::exception& error) {
    fmt::print(stderr, "weft: internal error: {}\n", error.what());
    return 3;
  }
}

}  // namespace weft
