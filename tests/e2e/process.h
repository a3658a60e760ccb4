// Runs the shipped binary as a user would.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weft/base/env.h"

namespace weft {

class Process {
 public:
  /// Starts build/weft with `arguments`; both outputs go to the file `log`. `before_exec` runs in the child.
  Process(const std::vector<std::string>& arguments, const std::string& log,
          const std::function<void()>& before_exec = {})
      : log_(log) {
    pid_ = fork();
    if (pid_ != 0) return;
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(out, 1), dup2(out, 2);
    if (before_exec) before_exec();
    std::vector<char*> argv = {const_cast<char*>(WEFT_BINARY)};
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(WEFT_BINARY, argv.data());
    _exit(127);
  }
  ~Process() {
    if (pid_ > 0) kill(pid_, SIGKILL), wait();
  }

  void signal(int number) const { kill(pid_, number); }

  /// The exit status, or 128 + the signal that ended it.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  /// Waits until `condition` holds or the process has ended; true if it holds.
  bool wait_until(const std::function<bool()>& condition) const {
    while (!condition()) {
      siginfo_t info{};
      waitid(P_PID, id_t(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
      if (info.si_pid != 0) return condition();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }

  std::string output() const { return Env::system().read(log_); }

 private:
  pid_t pid_ = -1;
  std::string log_;
};

struct Result {
  int status;
  std::string output;
};

inline Result run_weft(const std::vector<std::string>& arguments, const std::string& log,
                       const std::function<void()>& before_exec = {}) {
  Process process(arguments, log, before_exec);
  const int status = process.wait();
  return {status, process.output()};
}

}  // namespace weft
