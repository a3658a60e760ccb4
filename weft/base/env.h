// All file I/O goes through an Env, so that tests can drop unsynced data, fill the disk and flip bits.
// Every call throws Error naming the path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// A file being written, front to back. close() without sync() leaves durability to the system.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  virtual void sync() = 0;   // on disk, with its metadata, when this returns
  virtual void close() = 0;  // reports late write errors; the destructor closes silently
  void append(std::string_view text) { append(std::as_bytes(std::span(text.data(), text.size()))); }
};

/// A read-only memory mapping of a whole file; views stay valid as long as it lives.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::span<const std::byte> bytes() const = 0;
};

class Env {
 public:
  virtual ~Env() = default;
  virtual std::unique_ptr<WritableFile> create(const std::string& path) = 0;  // truncates
  virtual std::unique_ptr<WritableFile> open_append(const std::string& path) = 0;
  virtual std::unique_ptr<MappedFile> map(const std::string& path) = 0;
  virtual std::string read(const std::string& path) = 0;  // whole file, afresh from the system
  virtual bool exists(const std::string& path) = 0;
  virtual std::vector<std::string> list(const std::string& dir) = 0;  // names, sorted; missing dir: empty
  virtual void create_dirs(const std::string& dir) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;  // replaces files, atomically
  virtual void remove_all(const std::string& path) = 0;
  virtual void sync_dir(const std::string& dir) = 0;  // makes renames and creations in it durable

  /// The real file system.
  static Env& system();
};

/// Writes `path` whole or not at all: `write` makes the temporary file that it is given and syncs it; rename,
/// sync of the directory.
void write_atomically(Env& env, const std::string& path,
                      const std::function<void(const std::string& temporary)>& write);
void write_file_atomically(Env& env, const std::string& path, std::string_view contents);

}  // namespace weft
