#include "weft/base/env.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "weft/base/error.h"

namespace weft {
namespace {

std::string parent_dir(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

/// What to add to the system's reason so that the user knows what to do about it.
std::string hint(const std::string& path, int error) {
  if (error == EFBIG) return " (the limit on file size, see `ulimit -f`)";
  struct statvfs disk;
  if ((error == ENOSPC || error == EDQUOT) && statvfs(parent_dir(path).c_str(), &disk) == 0)
    return fmt::format(" ({} kB free)", disk.f_bavail * disk.f_frsize / 1000);
  return "";
}

[[noreturn]] void fail_with(int error, const char* verb, const std::string& path) {
  fail("cannot {} {}: {}{}", verb, path, std::generic_category().message(error), hint(path, error));
}

/// A system call repeated while signals interrupt it; -1 and errno as the call itself.
template <class Call>
auto retried(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, const char* verb)
      : fd_(retried([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); })) {
    if (fd_ < 0) fail_with(errno, verb, path);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  /// Returns errno or 0. Never repeated: Linux has let go of the descriptor even when it says EINTR.
  int close() {
    if (fd_ < 0) return 0;
    const int status = ::close(fd_);
    fd_ = -1;
    return status != 0 && errno != EINTR ? errno : 0;
  }

 private:
  int fd_;
};

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(const std::string& path, int flags)
      : path_(path), file_(path, O_WRONLY | O_CREAT | flags, "write") {}

  void append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = retried([&] { return ::write(file_.get(), bytes.data(), bytes.size()); });
      if (n < 0) fail_with(errno, "write", path_);
      bytes = bytes.subspan(size_t(n));
    }
  }
  void sync() override {
    if (retried([&] { return ::fsync(file_.get()); }) != 0) fail_with(errno, "sync", path_);
  }
  void close() override {
    if (const int error = file_.close()) fail_with(error, "write", path_);
  }

 private:
  std::string path_;
  Descriptor file_;
};

/// Size of an opened file, which must not be a directory (that opens for reading too).
size_t size_of(const Descriptor& file, const std::string& path) {
  struct stat status;
  if (::fstat(file.get(), &status) != 0) fail_with(errno, "read", path);
  if (S_ISDIR(status.st_mode)) fail_with(EISDIR, "read", path);
  return size_t(status.st_size);
}

class PosixMappedFile : public MappedFile {
 public:
  explicit PosixMappedFile(const std::string& path) {
    const Descriptor file(path, O_RDONLY, "read");
    size_ = size_of(file, path);
    if (size_ == 0) return;  // mmap refuses empty ranges
    address_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
    if (address_ == MAP_FAILED) fail_with(errno, "map", path);
  }
  PosixMappedFile(const PosixMappedFile&) = delete;
  PosixMappedFile& operator=(const PosixMappedFile&) = delete;
  ~PosixMappedFile() override {
    if (size_ > 0) ::munmap(address_, size_);
  }

  std::span<const std::byte> bytes() const override {
    return {static_cast<const std::byte*>(address_), size_};
  }

 private:
  void* address_ = nullptr;
  size_t size_ = 0;
};

class PosixEnv : public Env {
 public:
  /// By default a write past RLIMIT_FSIZE kills the process; ignored, it fails with EFBIG like any other
  /// error.
  PosixEnv() { std::signal(SIGXFSZ, SIG_IGN); }

  std::unique_ptr<WritableFile> create(const std::string& path) override {
    return std::make_unique<PosixWritableFile>(path, O_TRUNC);
  }
  std::unique_ptr<WritableFile> open_append(const std::string& path) override {
    return std::make_unique<PosixWritableFile>(path, O_APPEND);
  }
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    return std::make_unique<PosixMappedFile>(path);
  }

  std::string read(const std::string& path) override {
    const Descriptor file(path, O_RDONLY, "read");
    std::string contents(size_of(file, path), '\0');
    size_t filled = 0;
    while (true) {  // the size is only a guess: the file may be growing, or lie in /proc
      if (filled == contents.size()) contents.resize(filled + 4096);
      const ssize_t n =
          retried([&] { return ::read(file.get(), contents.data() + filled, contents.size() - filled); });
      if (n < 0) fail_with(errno, "read", path);
      if (n == 0) break;
      filled += size_t(n);
    }
    contents.resize(filled);
    return contents;
  }

  bool exists(const std::string& path) override {
    struct stat status;
    if (::stat(path.c_str(), &status) == 0) return true;
    if (errno != ENOENT && errno != ENOTDIR) fail_with(errno, "look at", path);
    return false;
  }

  std::vector<std::string> list(const std::string& dir) override {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator entry(dir, error), end;
    while (!error && entry != end) {
      names.push_back(entry->path().filename().string());
      entry.increment(error);
    }
    if (error && error.value() != ENOENT) fail_with(error.value(), "list", dir);
    std::sort(names.begin(), names.end());
    return names;
  }

  void create_dirs(const std::string& dir) override {
    std::error_code error;
    std::filesystem::create_directories(dir, error);
    if (error) fail_with(error.value(), "create the directory", dir);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_with(errno, "rename", from + " to " + to);
  }

  void remove_all(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) fail_with(error.value(), "remove", path);
  }

  void sync_dir(const std::string& dir) override {
    const Descriptor file(dir.empty() ? "." : dir, O_RDONLY | O_DIRECTORY, "sync the directory");
    if (retried([&] { return ::fsync(file.get()); }) != 0) fail_with(errno, "sync the directory", dir);
  }
};

}  // namespace

Env& Env::system() {
  static PosixEnv env;
  return env;
}

void write_atomically(Env& env, const std::string& path,
                      const std::function<void(const std::string& temporary)>& write) {
  const std::string temporary = path + ".tmp";
  try {
    write(temporary);
    env.rename(temporary, path);
  } catch (const Error&) {
    try {
      env.remove_all(temporary);  // on a full disk its room is needed
    } catch (const Error&) {
      // The first error tells more.
    }
    throw;
  }
  env.sync_dir(parent_dir(path));
}

void write_file_atomically(Env& env, const std::string& path, std::string_view contents) {
  write_atomically(env, path, [&](const std::string& temporary) {
    const auto file = env.create(temporary);
    file->append(contents);
    file->sync();
    file->close();
  });
}

}  // namespace weft
