#include "apps/weft/libweft.h"

#include <cstdlib>
#include <filesystem>

#include <dlfcn.h>

#include "weft/base/error.h"
#include "weft/comm/place.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void set_environment() {
  const auto set_default = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), /*overwrite=*/0);
  };
  // Threads that spin while they wait cost a machine that does anything else most of its speed.
  set_default("OMP_WAIT_POLICY", "passive");
  // MKL may otherwise sum in another order from run to run; AUTO keeps the fastest instruction set.
  set_default("MKL_CBWR", "AUTO,STRICT");
  if (const Place place = find_place(); place.local_size > 1)
    set_default("OMP_NUM_THREADS", std::to_string(threads_per_rank(place)));
}

std::string libweft_path() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path places[] = {here / "libweft.so", here.parent_path() / "lib" / "libweft.so"};
  for (const auto& place : places) {
    if (fs::exists(place)) return place.string();
  }
  fail("libweft.so, the part of Weft that computes, is neither {} nor {}: run `make build`",
       places[0].string(), places[1].string());
}

void* open_libweft() {
  const std::string path = libweft_path();
  set_environment();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail("cannot load {}: {}\nIf libtorch has moved or changed since the build, run `make build` again.",
         path, dlerror());
  }
  return library;
}

}  // namespace

void* find_in_libweft(const char* function) {
  static void* const library = open_libweft();
  void* const symbol = dlsym(library, function);
  if (symbol == nullptr)
    fail("libweft.so has no function {}: it is of another version; run `make build`", function);
  return symbol;
}

}  // namespace weft
