#include "weft/train/summary.h"

namespace weft {
void write_summary(Env&, const Config&, const std::vector<nlohmann::ordered_json>&, std::optional<double>) {}
}  // namespace weft
