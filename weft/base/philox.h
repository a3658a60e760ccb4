// Philox4x32-10, the counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011): a random number is a pure function of (key, counter), so initialisation and dropout are
// f(seed, name or site, global index) and no generator state exists anywhere.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>

namespace weft {

inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0) {
  std::array<uint32_t, 4> c = {uint32_t(counter_low), uint32_t(counter_low >> 32), uint32_t(counter_high),
                               uint32_t(counter_high >> 32)};
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53) * c[0], p1 = uint64_t(0xCD9E8D57) * c[2];
    c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
  return c;
}

/// Uniform in (0, 1), 52 bits: with one more the half would round the largest up to 1.
inline double uniform_from_bits(uint32_t high, uint32_t low) {
  return (double((uint64_t(high) << 32 | low) >> 12) + 0.5) * 0x1p-52;
}

/// Two independent standard normals (Box-Muller) for one counter.
inline std::pair<double, double> philox_normals(uint64_t key, uint64_t counter) {
  const auto bits = philox(key, counter);
  const double radius = std::sqrt(-2 * std::log(uniform_from_bits(bits[0], bits[1])));
  const double angle = 2 * std::numbers::pi * uniform_from_bits(bits[2], bits[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace weft
