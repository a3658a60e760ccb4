#include "weft/commands/command.h"

#include <c10/util/Exception.h>

#include "weft/comm/group.h"
#include "weft/comm/supervised.h"

namespace weft {

int guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const CommError& error) {
    return report_failure(Failure::comm, error.what());
  } catch (const Error& error) {
    return report_failure(Failure::error, error.what());
  } catch (const c10::Error& error) {
    return report_failure(Failure::internal, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return report_failure(Failure::internal, error.what());
  }
}

}  // namespace weft
