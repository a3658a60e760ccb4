// Short names for paths.
#pragma once

#include <string>
#include <vector>

namespace weft {

/// Each path's last part, with as many of the parts before it as tell it from the others: "books/valid" and
/// "web/valid". Equal paths get equal names.
std::vector<std::string> distinct_names(const std::vector<std::string>& paths);

}  // namespace weft
