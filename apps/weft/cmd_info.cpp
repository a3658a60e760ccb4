// `weft info`: what this build is, and what it found on this machine.
#include <fmt/format.h>

#include "weft/base/config_schema.h"
#include "weft/base/error.h"

#include "apps/weft/commands.h"
#include "apps/weft/libweft.h"

namespace weft {

#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;  // "Clang 14.0.6"
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

void add_info_command(CLI::App& app, int* status) {
  CLI::App* command = app.add_subcommand("info", "Show version, libtorch, devices and what is compiled in");
  command->callback([=] {
    fmt::print("weft          {}\n", WEFT_VERSION);
    fmt::print("compiler      {}\n", kCompiler);
    const char* const features[][2] = {{"data", "data.format"},
                                       {"optimizers", "optim.name"},
                                       {"schedules", "optim.schedule"},
                                       {"RoPE scaling", "model.rope_scaling"},
                                       {"precision", "precision.compute"}};
    for (const auto& [label, key] : features) {
      fmt::print("{:<14}{}\n", label, fmt::join(find_key(key)->allowed.words, ", "));
    }
    std::fflush(stdout);
    *status = libweft_function<decltype(weft_info)>("weft_info")();
  });
}

}  // namespace weft
