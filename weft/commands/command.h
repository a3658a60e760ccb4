// What the commands of libweft share.
#pragma once

#include <functional>

namespace weft {

/// Runs a command's body: no exception crosses the library's door. An Error is the user's to mend (status 1);
/// anything else is ours and says so (status 3).
int guarded(const std::function<int()>& body);

}  // namespace weft
