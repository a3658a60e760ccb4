#include "weft/report/tensorboard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>

#include <unistd.h>

#include <fmt/format.h>

namespace weft {
namespace {

// Protocol buffers: a field is its number and wire type as a varint, then the value; fields go in ascending
// order, as protobuf's own encoder writes them.

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += char(value | 0x80);
  return bytes + char(value);
}

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(value); ++i) bytes += char(value >> 8 * i);
  return bytes;
}

std::string integer_field(unsigned number, int64_t value) {
  return value == 0 ? "" : varint(number << 3) + varint(uint64_t(value));  // zeros are left out
}
std::string double_field(unsigned number, double value) {
  return varint(number << 3 | 1) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string bytes_field(unsigned number, std::string_view bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
std::string float_field(unsigned number, float value) {
  return varint(number << 3 | 5) + little_endian(std::bit_cast<uint32_t>(value));
}

std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return little_endian(uint32_t((crc >> 15 | crc << 17) + 0xa282ead8u));
}

std::string record(const std::string& event) {
  const std::string length = little_endian(uint64_t(event.size()));
  return length + masked_crc(length) + event + masked_crc(event);
}

std::string event(double wall_time, int64_t step) {
  return double_field(1, wall_time) + integer_field(2, step);
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr std::string_view kPrefix = "events.out.tfevents.";

/// events.out.tfevents.SECONDS.HOST.PID: later than every file in `dir`, even within one second.
std::string next_name(Env& env, const std::string& dir) {
  int64_t seconds = int64_t(now());
  for (const std::string& name : env.list(dir)) {
    int64_t taken = 0;
    if (!name.starts_with(kPrefix)) continue;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), taken);
    seconds = std::max(seconds, taken + 1);
  }
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return fmt::format("{}{:010}.{}.{}", kPrefix, seconds, host[0] ? host : "localhost", getpid());
}

struct Tags {
  const char* key;  // in metrics.jsonl
  double factor;
  std::vector<const char*> tags;
};

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> entries;
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
      entries[i] = crc;
    }
    return entries;
  }();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = crc >> 8 ^ table[(crc ^ uint8_t(byte)) & 0xff];
  return ~crc;
}

std::string version_record(double wall_time) {
  return record(event(wall_time, 0) + bytes_field(3, "brain.Event:2"));
}

std::string scalars_record(double wall_time, int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars)
    summary += bytes_field(1, bytes_field(1, tag) + float_field(2, value));
  return record(event(wall_time, step) + bytes_field(5, summary));
}

std::string text_record(double wall_time, int64_t step, std::string_view tag, std::string_view text) {
  constexpr int64_t kString = 7, kTensorClass = 2;  // DataType DT_STRING, DataClass DATA_CLASS_TENSOR
  const std::string tensor = integer_field(1, kString) + bytes_field(2, "") + bytes_field(8, text);
  const std::string metadata = bytes_field(1, bytes_field(1, "text")) + integer_field(4, kTensorClass);
  const std::string value = bytes_field(1, tag) + bytes_field(8, tensor) + bytes_field(9, metadata);
  return record(event(wall_time, step) + bytes_field(5, bytes_field(1, value)));
}

std::string restart_record(double wall_time, int64_t step) {
  constexpr int64_t kStart = 1;  // SessionLog.START
  return record(event(wall_time, step) + bytes_field(7, integer_field(1, kStart)));
}

Scalars tensorboard_scalars(const nlohmann::ordered_json& line) {
  static const std::vector<Tags> table = {
      {"loss", 1, {"lm loss", "loss_metrics/global_avg_loss"}},
      {"valid_loss", 1, {"lm loss validation", "validation_metrics/loss"}},
      {"valid_loss_ema", 1, {"validation_metrics/loss_ema"}},
      {"baseline", 1, {"validation_metrics/bigram_baseline"}},
      {"lr", 1, {"learning-rate", "lr"}},
      {"grad_norm", 1, {"grad-norm", "grad_norm"}},
      {"global_batch", 1, {"batch-size"}},
      {"weight_decay", 1, {"weight-decay"}},
      {"step_s", 1, {"iteration-time", "time_metrics/end_to_end(s)"}},
      {"tokens", 1, {"n_tokens_seen"}},
      {"tokens_per_s", 1, {"throughput(tps)"}},
      {"tflops", 1, {"throughput", "tflops"}},
      {"mfu", 100, {"mfu(%)"}},
      {"rss_mb", 1e6 / (1 << 30), {"memory/max_active(GiB)"}},
  };
  Scalars scalars;
  for (const auto& [key, factor, tags] : table)
    if (const auto value = line.find(key); value != line.end() && value->is_number())
      for (const char* tag : tags) scalars.emplace_back(tag, float(factor * value->get<double>()));
  for (const auto& [key, value] : line.items())  // one for each source of validation data
    if (key.starts_with("valid_loss/") && value.is_number())
      scalars.emplace_back("validation_metrics/loss/" + key.substr(key.find('/') + 1), value.get<float>());
  return scalars;
}

void EventFile::append(int64_t step, const std::string& record) {
  auto file = std::move(file_);  // given up if a write throws: its last record may be torn
  if (!file) {
    env_.create_dirs(dir_);
    file = env_.create(dir_ + "/" + next_name(env_, dir_));
    file->append(version_record(now()) + restart_record(now(), step));
  }
  file->append(record);
  file_ = std::move(file);
}

void EventFile::scalars(int64_t step, const Scalars& scalars) {
  append(step, scalars_record(now(), step, scalars));
}

void EventFile::text(int64_t step, const std::string& tag, const std::string& text) {
  std::string block = "    ";  // Markdown: an indented line is verbatim
  for (const char c : text) block += c == '\n' ? std::string("\n    ") : std::string(1, c);
  append(step, text_record(now(), step, tag, block));
}

}  // namespace weft
