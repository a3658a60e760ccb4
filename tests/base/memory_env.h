// An Env whose files live in memory: a map from path to contents, without directories of their own.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/env.h"
#include "weft/base/error.h"

namespace weft {

class MemoryEnv : public Env {
 public:
  using Files = std::map<std::string, std::string>;
  explicit MemoryEnv(Files files = {}) : files_(std::move(files)) {}

  std::unique_ptr<WritableFile> create(const std::string& path) override {
    files_[path].clear();
    return open_append(path);
  }
  std::unique_ptr<WritableFile> open_append(const std::string& path) override {
    return std::make_unique<Writing>(files_[path]);
  }
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    return std::make_unique<Mapped>(existing(path));
  }
  std::string read(const std::string& path) override { return existing(path); }
  bool exists(const std::string& path) override {
    return std::ranges::any_of(files_, [&](const auto& file) { return is_within(file.first, path); });
  }
  std::vector<std::string> list(const std::string& dir) override {
    std::vector<std::string> names;
    for (const auto& [path, contents] : files_)
      if (path.starts_with(dir + "/") && path.find('/', dir.size() + 1) == std::string::npos)
        names.push_back(path.substr(dir.size() + 1));
    return names;
  }
  void create_dirs(const std::string&) override {}
  void rename(const std::string& from, const std::string& to) override {
    files_[to] = existing(from);
    files_.erase(from);
  }
  void remove_all(const std::string& path) override {
    std::erase_if(files_, [&](const auto& file) { return is_within(file.first, path); });
  }
  void sync_dir(const std::string&) override {}

 private:
  class Writing : public WritableFile {
   public:
    explicit Writing(std::string& contents) : contents_(contents) {}
    void append(std::span<const std::byte> bytes) override {
      contents_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    void sync() override {}
    void close() override {}

   private:
    std::string& contents_;
  };

  /// A copy in an allocation of exactly its size, so that a sanitizer sees a read past the end.
  class Mapped : public MappedFile {
   public:
    explicit Mapped(const std::string& contents) {
      const auto bytes = std::as_bytes(std::span(contents));
      bytes_ = std::vector<std::byte>(bytes.begin(), bytes.end());
    }
    std::span<const std::byte> bytes() const override { return bytes_; }

   private:
    std::vector<std::byte> bytes_;
  };

  static bool is_within(const std::string& path, const std::string& dir) {
    return path == dir || path.starts_with(dir + "/");
  }

  std::string& existing(const std::string& path) {
    const auto found = files_.find(path);
    if (found == files_.end()) fail("cannot read {}: No such file or directory", path);
    return found->second;
  }

  Files files_;
};

}  // namespace weft
