#include "weft/comm/supervised.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/comm/place.h"

namespace weft {
namespace {

constexpr const char* kConnectionVariable = "WEFT_SUPERVISOR_FD";

int connect_to(const std::string& name) {
  const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);  // after a 0: a name that is no file
  const auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (connect(connection, reinterpret_cast<sockaddr*>(&address), length) != 0)
    fail("this rank's supervisor is gone: {}", std::strerror(errno));
  return connection;
}

/// Takes the two outputs that the supervisor has for this rank.
void receive_outputs(int connection) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &data, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof control;
  const ssize_t received = recvmsg(connection, &message, 0);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (received != 1 || !header || header->cmsg_type != SCM_RIGHTS)
    fail("this rank's supervisor has no place for it: another process has its rank, or it is going down");
  int outputs[2];
  std::memcpy(outputs, CMSG_DATA(header), sizeof outputs);
  for (const int target : {STDOUT_FILENO, STDERR_FILENO}) {
    dup2(outputs[target - 1], target);
    close(outputs[target - 1]);
  }
}

/// Ends the process once the supervisor has closed the connection, or mpirun, its parent, is gone.
[[noreturn]] void watch(int connection, pid_t parent) {
  while (true) {
    pollfd end{connection, POLLIN, 0};
    if (poll(&end, 1, /*ms=*/200) > 0 || getppid() != parent) _exit(1);
  }
}

}  // namespace

std::string with_rank(int64_t rank, const std::string& text) {
  return text.starts_with("rank ") ? text : fmt::format("rank {}: {}", rank, text);
}

int exit_status(Failure failure) { return failure == Failure::internal ? 3 : 1; }

void join_supervisor() {
  const char* const name = std::getenv(kSupervisorVariable);
  if (!name) return;
  const pid_t parent = getppid();
  const int connection = connect_to(name);
  const std::string rank = std::to_string(find_place().rank);
  send(connection, rank.data(), rank.size(), MSG_NOSIGNAL);
  receive_outputs(connection);
  setenv(kConnectionVariable, std::to_string(connection).c_str(), 1);
  unsetenv(kSupervisorVariable);
  std::thread(watch, connection, parent).detach();
}

int report_failure(Failure failure, const std::string& text) {
  const char* const connection = std::getenv(kConnectionVariable);
  const Place place = [] {
    try {
      return find_place();
    } catch (const Error&) {
      return Place{};  // the environment itself is what is wrong
    }
  }();
  const bool on_screen = !connection || place.rank > 0;  // else the supervisor prints it
  if (on_screen) {
    const char* const what = failure == Failure::internal ? "internal error" : "error";
    const std::string shown = place.size == 1 ? text : with_rank(place.rank, text);
    std::fputs(fmt::format("weft: {}: {}\n", what, shown).c_str(), stderr);
  }
  std::fflush(nullptr);
  if (connection) {
    const int fd = std::atoi(connection);
    const std::string message = static_cast<char>(failure) + text.substr(0, 60'000);
    send(fd, message.data(), message.size(), MSG_NOSIGNAL);
    sleep(10);  // until it ends this process
  }
  return exit_status(failure);
}

}  // namespace weft
