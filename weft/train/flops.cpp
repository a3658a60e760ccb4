#include "weft/train/flops.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"

namespace weft {
namespace {

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

// Where measurements of this machine are kept, or empty.
std::string cache_dir() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::string(xdg) + "/weft";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/weft";
  return {};
}

double measure_gemm(at::ScalarType dtype) {
  using Clock = std::chrono::steady_clock;
  const int64_t n = 768;
  const at::Tensor a = at::ones({n, n}, dtype), b = at::ones({n, n}, dtype);
  at::Tensor c = at::empty({n, n}, dtype);
  double best = 0;
  for (const auto start = Clock::now(); Clock::now() - start < std::chrono::milliseconds(200);) {
    const auto begin = Clock::now();
    at::mm_out(c, a, b);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, 2.0 * double(n) * double(n) * double(n) / seconds);
  }
  return best;
}

}  // namespace

double model_flops_per_token(const Decoder& decoder, int64_t seq_len) {
  const size_t first = decoder.first_trainable_unit();
  const auto& units = decoder.units();
  double flops = 0;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    for (const auto& param : units[unit]->params()) {
      if (param->spec().looked_up) continue;
      const bool passes_gradient = unit >= first || unit == 0;  // a tied embedding is the head
      flops += 2.0 * double(param->global_numel()) * (1 + int(passes_gradient) + int(param->trainable()));
    }
  }
  for (size_t block = 0; block < decoder.blocks().size(); ++block)
    flops += (block >= first ? 3 : 1) * decoder.blocks()[block]->flops_per_token(seq_len);
  return flops;
}

double gemm_peak(Env& env, at::ScalarType dtype) {
  const std::string key =
      fmt::format("{}, {}, {} threads", cpu_model(), at::toString(dtype), at::get_num_threads());
  const std::string dir = cache_dir(), path = dir + "/gemm_peak.json";
  nlohmann::json known = nlohmann::json::object();
  try {
    if (!dir.empty() && env.exists(path)) known = nlohmann::json::parse(env.read(path));
    if (known.contains(key)) return known.at(key).get<double>();
  } catch (const std::exception&) {
    known = nlohmann::json::object();  // a cache is only a cache: measure afresh
  }
  const double peak = measure_gemm(dtype);
  if (dir.empty()) return peak;
  try {
    known[key] = peak;
    env.create_dirs(dir);
    write_file_atomically(env, path, known.dump(1) + "\n");
  } catch (const std::exception&) {
    // A home that cannot be written costs 0.2 s a run.
  }
  return peak;
}

}  // namespace weft
