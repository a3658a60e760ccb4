// An Env over the real file system that fails as disks, machines and cables do: it runs full, loses power,
// and flips bits. After a power cut only what was synced survives: a file keeps the bytes it had at its last
// sync(), and a creation or a rename counts only once the directory it happened in was synced.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/env.h"
#include "weft/base/error.h"

namespace weft {

/// Thrown by every operation after the power cut that stop_after() ordered.
struct PowerCut : std::runtime_error {
  PowerCut() : std::runtime_error("power cut") {}
};

class FaultEnv : public Env {
 public:
  /// From now on the disk has room for `bytes` more; the append that passes them writes what fits, then
  /// fails.
  void fill_disk_after(uint64_t bytes) { room_ = bytes; }
  void empty_disk() { room_.reset(); }

  /// The power fails after `operations` more calls that change or sync something: each later one throws
  /// PowerCut.
  void stop_after(uint64_t operations) { operations_left_ = operations; }
  void power_on() { operations_left_.reset(); }
  uint64_t operations() const { return operations_; }

  /// Puts the files back to what a machine that lost power now would find.
  void drop_unsynced() {
    for (const auto& [path, synced] : synced_size_)
      if (std::filesystem::exists(path)) std::filesystem::resize_file(path, synced);
    for (; !journal_.empty(); journal_.pop_back()) undo(journal_.back());
    synced_size_.clear();
  }

  static void flip_bit(const std::string& path, uint64_t offset, int bit = 0) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.exceptions(std::ios::failbit | std::ios::badbit);
    file.seekg(std::streamoff(offset));
    const int byte = file.get();
    file.seekp(std::streamoff(offset));
    file.put(char(byte ^ (1 << bit)));
  }

  std::unique_ptr<WritableFile> create(const std::string& path) override { return open(path, true); }
  std::unique_ptr<WritableFile> open_append(const std::string& path) override { return open(path, false); }
  std::unique_ptr<MappedFile> map(const std::string& path) override { return real_.map(path); }
  std::string read(const std::string& path) override { return real_.read(path); }
  bool exists(const std::string& path) override { return real_.exists(path); }
  std::vector<std::string> list(const std::string& dir) override { return real_.list(dir); }

  void create_dirs(const std::string& dir) override {
    count();
    std::filesystem::path made;
    for (const auto& part : std::filesystem::path(clean(dir))) {
      made /= part;
      if (!std::filesystem::exists(made)) journal_.push_back({"", made.string(), {}});
    }
    real_.create_dirs(dir);
  }

  void rename(const std::string& from, const std::string& to) override {
    count();
    Change change{clean(from), clean(to), {}};
    if (std::filesystem::is_regular_file(to)) change.replaced = real_.read(to);
    real_.rename(from, to);
    move_synced(change.from, change.to);
    journal_.push_back(change);
  }

  void remove_all(const std::string& path) override {
    count();
    real_.remove_all(path);
    std::erase_if(synced_size_,
                  [&](const auto& file) { return within(file.first, clean(path)).has_value(); });
  }

  void sync_dir(const std::string& dir) override {
    count();
    real_.sync_dir(dir);
    for (size_t i = 0; i < journal_.size();)
      if (parent(path_now(i)) == clean(dir))
        make_durable(i);
      else
        ++i;
  }

 private:
  /// A change of a directory that is not yet durable: `to` was created (from is empty) or renamed from
  /// `from`.
  struct Change {
    std::string from, to;
    std::optional<std::string> replaced;  // contents of the file that the rename replaced
  };

  class File : public WritableFile {
   public:
    File(FaultEnv& env, std::string path, std::unique_ptr<WritableFile> file)
        : env_(env), path_(std::move(path)), file_(std::move(file)) {}
    void append(std::span<const std::byte> bytes) override {
      env_.count();
      const size_t fits = env_.room_ ? size_t(std::min<uint64_t>(*env_.room_, bytes.size())) : bytes.size();
      file_->append(bytes.first(fits));
      if (env_.room_) *env_.room_ -= fits;
      if (fits < bytes.size()) fail("cannot write {}: No space left on device (0 kB free)", path_);
    }
    void sync() override {
      env_.count();
      file_->sync();
      env_.synced_size_[path_] = std::filesystem::file_size(path_);
    }
    void close() override { file_->close(); }

   private:
    FaultEnv& env_;
    std::string path_;  // a file is synced under the name it was opened with
    std::unique_ptr<WritableFile> file_;
  };

  std::unique_ptr<WritableFile> open(const std::string& name, bool truncate) {
    count();
    const std::string path = clean(name);
    const bool existed = std::filesystem::exists(path);
    auto file = truncate ? real_.create(path) : real_.open_append(path);
    if (!existed) journal_.push_back({"", path, {}});
    if (truncate || !existed)
      synced_size_[path] = 0;
    else
      synced_size_.try_emplace(path, std::filesystem::file_size(path));
    return std::make_unique<File>(*this, path, std::move(file));
  }

  void count() {
    if (operations_left_ && (*operations_left_)-- == 0) {
      operations_left_ = 0;
      throw PowerCut();
    }
    ++operations_;
  }

  static std::string clean(const std::string& path) {
    const auto normal = std::filesystem::path(path).lexically_normal();
    return (normal.has_filename() ? normal : normal.parent_path()).string();
  }
  static std::string parent(const std::string& path) {
    const std::string dir = std::filesystem::path(path).parent_path().string();
    return dir.empty() ? "." : dir;
  }
  /// What follows `dir` in `path` ("" if they are the same), or nothing if path does not lie in it.
  static std::optional<std::string> within(const std::string& path, const std::string& dir) {
    if (path.compare(0, dir.size(), dir) != 0 || (path.size() > dir.size() && path[dir.size()] != '/'))
      return {};
    return path.substr(dir.size());
  }
  static void move(std::string* path, const std::string& from, const std::string& to) {
    if (const auto rest = within(*path, from)) *path = to + *rest;
  }

  void move_synced(const std::string& from, const std::string& to) {
    std::map<std::string, uint64_t> moved;
    for (auto [path, synced] : synced_size_)
      if (within(path, from)) moved[to + *within(path, from)] = synced;
    std::erase_if(synced_size_,
                  [&](const auto& file) { return within(file.first, from) || file.first == to; });
    synced_size_.merge(moved);
  }

  /// Where what change `i` made lies now, after the renames that followed it.
  std::string path_now(size_t i) const {
    std::string path = journal_[i].to;
    for (size_t later = i + 1; later < journal_.size(); ++later)
      if (!journal_[later].from.empty()) move(&path, journal_[later].from, journal_[later].to);
    return path;
  }

  /// Takes change `i` out of the journal; what happened before it now has its names from after it.
  void make_durable(size_t i) {
    const Change change = journal_[i];
    journal_.erase(journal_.begin() + std::ptrdiff_t(i));
    if (change.from.empty()) return;
    for (size_t earlier = 0; earlier < i; ++earlier) {
      move(&journal_[earlier].from, change.from, change.to);
      move(&journal_[earlier].to, change.from, change.to);
    }
  }

  void undo(const Change& change) {
    if (change.from.empty()) {
      std::filesystem::remove_all(change.to);
    } else if (std::filesystem::exists(change.to)) {
      std::filesystem::rename(change.to, change.from);
      if (change.replaced) std::ofstream(change.to, std::ios::binary) << *change.replaced;
    }
  }

  Env& real_ = Env::system();
  std::optional<uint64_t> room_, operations_left_;
  uint64_t operations_ = 0;
  std::map<std::string, uint64_t> synced_size_;  // of every file opened for writing
  std::vector<Change> journal_;
};

}  // namespace weft
