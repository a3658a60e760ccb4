#include "weft/data/text_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "weft/base/env.h"
#include "weft/base/error.h"
#include "weft/data/utf8.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kProbeBytes = 64 << 10;
constexpr size_t kMaxBadShare = 10;  // one stray byte in so many is taken for text in an odd encoding

std::vector<std::string> txt_files_below(const std::string& dir) {
  std::vector<std::string> found;
  try {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(dir)) {
      if (entry.is_regular_file() && entry.path().extension() == ".txt")
        found.push_back(entry.path().string());
    }
  } catch (const fs::filesystem_error& error) {
    fail("cannot search {} for text: {}", dir, error.code().message());
  }
  if (found.empty()) fail("{}: no *.txt files in this directory or below it", dir);
  std::ranges::sort(found);
  return found;
}

TextFile probe(const std::string& path) {
  const auto file = Env::system().map(path);
  const auto bytes = file->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min(bytes.size(), kProbeBytes));
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    fail("{}: not a text file: byte {} is NUL", path, nul);
  }
  size_t bad = 0, first_bad = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_sequence(text.substr(at));
    if (length == 0 && bad++ == 0) first_bad = at;
    at += std::max<size_t>(length, 1);
  }
  // Three bad bytes may be a character that the probe's end cuts.
  if (bad > 3 && bad * kMaxBadShare > text.size()) {
    fail("{}: not UTF-8 text: {} of its first {} bytes are not, byte {} first; convert it, say with iconv",
         path, bad, text.size(), first_bad);
  }
  return {path, int64_t(bytes.size())};
}

}  // namespace

int64_t total_bytes(const std::vector<TextFile>& files) {
  int64_t bytes = 0;
  for (const TextFile& file : files) bytes += file.bytes;
  return bytes;
}

std::vector<TextFile> find_text_files(const std::vector<std::string>& paths) {
  std::vector<TextFile> files;
  for (const std::string& path : paths) {
    std::error_code error;
    const bool is_dir = fs::is_directory(path, error);
    if (!fs::exists(path, error)) fail("{}: no such file or directory", path);
    for (const std::string& file : is_dir ? txt_files_below(path) : std::vector{path}) {
      files.push_back(probe(file));
    }
  }
  if (total_bytes(files) == 0) fail("there is no text in {}: {} files, all empty", fmt::join(paths, ", "), files.size());
  return files;
}

void check_writable(const std::string& path) {
  Env& env = Env::system();
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) env.create_dirs(parent.string());
  std::error_code error;
  if (fs::is_directory(path, error)) fail("{} is a directory: name a file", path);
  env.create(path + ".tmp")->close();
  env.remove_all(path + ".tmp");
}

}  // namespace weft
