// The text that users name on the command line, checked before any work starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct TextFile {
  std::string path;
  int64_t bytes = 0;
};

/// The files that `paths` name: each is a text file, or a directory that is searched recursively for *.txt
/// files, in sorted order. Throws Error for a path that does not exist, a directory without *.txt files, a
/// file that cannot be read or is not text (its first 64 KB hold a NUL byte, or too many bytes that are not
/// UTF-8), or if all files are empty.
std::vector<TextFile> find_text_files(const std::vector<std::string>& paths);

int64_t total_bytes(const std::vector<TextFile>& files);

/// Creates the directory that `path` lies in, if need be, and throws Error if no file could be written at
/// `path`.
void check_writable(const std::string& path);

}  // namespace weft
