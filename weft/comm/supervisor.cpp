#include "weft/comm/supervisor.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
extern "C" {  // which glibc 2.36 forgets
#include <sys/pidfd.h>
}

#include "weft/base/env.h"
#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/comm/place.h"
#include "weft/comm/supervised.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

// After the first rank's failure the others have this long to say what they know of it.
constexpr seconds kGrace{1};
// After the first rank's end, without failure, the others have this long to end too.
constexpr seconds kLeaving{60};
// All ranks must have come within this time.
constexpr seconds kStarting{120};
// mpirun has this long to clear up when its ranks are gone.
constexpr seconds kClearing{5};

[[noreturn]] void fail_with_errno(const char* what) { fail("{}: {}", what, std::strerror(errno)); }

int checked(int result, const char* what) {
  if (result < 0) fail_with_errno(what);
  return result;
}

std::string signal_text(int signal) {
  const char* const name = sigabbrev_np(signal);
  return fmt::format("signal {}{}", signal, name ? fmt::format(" (SIG{})", name) : "");
}

/// As if this process had never caught the signal.
[[noreturn]] void end_by(int signal) {
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  std::signal(signal, SIG_DFL);
  raise(signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  _exit(128 + signal);
}

/// A socket that ranks connect to: in no directory, under a name that no other job has.
class Door {
 public:
  Door() : name_(fmt::format("weft-{}-{:08x}", getpid(), std::random_device{}())) {
    fd_ = checked(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name_.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
    checked(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), "bind");
    checked(listen(fd_, SOMAXCONN), "listen");
  }
  ~Door() { close(fd_); }
  Door(const Door&) = delete;

  const std::string& name() const { return name_; }
  int fd() const { return fd_; }

 private:
  std::string name_;
  int fd_;
};

/// Where Open MPI may put its files, shared memory among them: what a mpirun that was killed leaves goes with
/// it.
class Scratch {
 public:
  Scratch() {
    for (const char* const parent : {"/dev/shm", "/tmp"}) {
      std::string path = fmt::format("{}/weft-XXXXXX", parent);
      if (!mkdtemp(path.data())) continue;
      path_ = path;
      return;
    }
    fail("neither in /dev/shm nor in /tmp a directory can be made: {}", std::strerror(errno));
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The command line that starts the ranks on this machine: as root too, any number of them, on any cores.
std::vector<std::string> mpirun_command(int64_t ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"mpirun",
                                      "--allow-run-as-root",
                                      "--oversubscribe",
                                      "--bind-to",
                                      "none",
                                      "--host",
                                      fmt::format("localhost:{}", ranks),
                                      "-np",
                                      std::to_string(ranks)};
  // Containers that forbid a process to read another's memory: Open MPI would find out by failing.
  char from = 0, to = 0;
  const iovec local{&to, 1}, remote{&from, 1};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1)
    command.insert(command.end(), {"--mca", "btl_vader_single_copy_mechanism", "none"});
  command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

/// Ours, without what would make mpirun ask a batch system for other machines, and with the door's name.
std::vector<std::string> rank_environment(const std::string& door, const std::string& scratch) {
  std::vector<std::string> kept;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    constexpr std::string_view kBatch[] = {"SLURM_", "PBS_", "LSB_", "PE_HOSTFILE="};
    if (std::ranges::none_of(kBatch, [&](std::string_view prefix) { return text.starts_with(prefix); }))
      kept.emplace_back(text);
  }
  kept.push_back(fmt::format("{}={}", kSupervisorVariable, door));
  for (const char* const name :
       {"orte_tmpdir_base", "btl_vader_backing_directory", "osc_sm_backing_directory"})
    kept.push_back(fmt::format("OMPI_MCA_{}={}", name, scratch));
  return kept;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

class Supervisor {
 public:
  Supervisor(int64_t ranks, const std::string& log_dir) : size_(ranks), log_dir_(log_dir) {}
  ~Supervisor();

  int run(const std::vector<std::string>& arguments);

 private:
  struct Rank {
    int64_t number;  // -1: it has not said yet
    int connection;  // -1: closed, by its end
    int process;     // a pidfd
  };
  /// What a rank said, or, without text, that it ended without a word.
  struct Event {
    int64_t rank;
    std::optional<Failure> failure;
    std::string text;
  };

  std::string log_of(int64_t rank) const { return fmt::format("{}/rank-{:04}.log", log_dir_, rank); }
  std::string mpirun_log() const { return log_dir_ + "/mpirun.log"; }

  void block_signals();
  void start_mpirun(std::vector<std::string> command);
  void wait_for_something();
  void wait_for_ranks() const;
  void take_signals();
  void accept_ranks();
  void read(Rank& rank);
  void welcome(Rank& rank, const std::string& number);
  void schedule(Clock::time_point end) { deadline_ = std::min(deadline_.value_or(end), end); }
  void signal_ranks(int signal) const;
  void end_job();
  const Event* cause() const;
  int conclude() const;  // the exit status; 128 + the user's signal: it ended the job at once

  int64_t size_;
  std::string log_dir_;
  Door door_;
  Scratch scratch_;
  sigset_t blocked_before_{};
  int signals_ = -1;  // a signalfd
  pid_t mpirun_ = -1;
  std::optional<int> mpirun_status_;  // it has ended
  std::vector<Rank> ranks_;           // all that have come
  std::vector<Event> events_;         // in the order of time
  int stop_signal_ = 0;               // the user's wish
  bool impatient_ = false;            // who has said it twice
  bool ending_ = false;               // we have killed the ranks
  int64_t have_come_ = 0;             // ranks
  std::optional<Clock::time_point> deadline_;
};

Supervisor::~Supervisor() {
  for (const Rank& rank : ranks_) close(rank.connection), close(rank.process);
  if (signals_ < 0) return;
  close(signals_);
  sigprocmask(SIG_SETMASK, &blocked_before_, nullptr);
}

void Supervisor::block_signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    const bool nohup = signal == SIGHUP && action.sa_handler == SIG_IGN;
    if (nohup) continue;
    std::signal(signal, SIG_DFL);  // shells start background jobs with SIGINT ignored
    sigaddset(&wanted, signal);
  }
  checked(sigprocmask(SIG_BLOCK, &wanted, &blocked_before_), "sigprocmask");
  signals_ = checked(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd");
}

void Supervisor::start_mpirun(std::vector<std::string> command) {
  std::vector<std::string> environment = rank_environment(door_.name(), scratch_.path());
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, mpirun_log().c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0644);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  // mpirun would kill the ranks a second after a signal that reaches the whole job, as a batch system or
  // systemd sends it, and they may be saving. It ends when they have; and by SIGKILL.
  sigset_t blocked = blocked_before_;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&blocked, signal);
  posix_spawnattr_setsigmask(&attributes, &blocked);
  const int error = posix_spawnp(&mpirun_, "mpirun", &files, &attributes, pointers(command).data(),
                                 pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error == 0) return;
  mpirun_ = -1;
  if (error == ENOENT)
    fail("--ranks starts ranks with mpirun, which is not installed: `apt-get install openmpi-bin`");
  fail("cannot run mpirun: {}", std::strerror(error));
}

int Supervisor::run(const std::vector<std::string>& arguments) {
  Env::system().create_dirs(log_dir_);
  Env::system().create(mpirun_log());  // or an error that names it
  // Two descriptors a rank; a hard limit that is too low for them shows in accept_ranks.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min(files.rlim_max, std::max(files.rlim_cur, rlim_t(2 * size_ + 64)));
  setrlimit(RLIMIT_NOFILE, &files);

  block_signals();
  start_mpirun(mpirun_command(size_, arguments));
  schedule(Clock::now() + kStarting);
  while (!mpirun_status_) {
    wait_for_something();
    take_signals();
    accept_ranks();
    for (Rank& rank : ranks_)
      if (rank.connection >= 0) read(rank);
    if (deadline_ && Clock::now() >= *deadline_) end_job();
  }
  signal_ranks(SIGKILL);  // whom mpirun has left
  wait_for_ranks();
  return conclude();
}

void Supervisor::wait_for_something() {
  std::vector<pollfd> sources = {{signals_, POLLIN, 0}, {door_.fd(), POLLIN, 0}};
  for (const Rank& rank : ranks_) sources.push_back({rank.connection, POLLIN, 0});
  int timeout = -1;
  if (deadline_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
    timeout = int(std::max<int64_t>(0, left));
  }
  poll(sources.data(), sources.size(), timeout);
}

/// Until they have let go of the run directory, among others: the user may start again at once.
void Supervisor::wait_for_ranks() const {
  for (const Rank& rank : ranks_) {
    pollfd end{rank.process, POLLIN, 0};
    poll(&end, 1, int(std::chrono::milliseconds(kClearing).count()));
  }
}

void Supervisor::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == ssize_t(sizeof info)) {
    const int signal = int(info.ssi_signo);
    if (signal == SIGCHLD) {
      int status = 0;
      if (waitpid(mpirun_, &status, WNOHANG) == mpirun_) mpirun_status_ = status;
    } else if (stop_signal_ == 0 && have_come_ == size_) {
      stop_signal_ = signal;
      signal_ranks(SIGUSR1);
    } else {  // or nothing has begun yet that would be worth saving
      stop_signal_ = signal;
      impatient_ = true;
      end_job();
    }
  }
}

void Supervisor::accept_ranks() {
  while (true) {
    const int connection = accept4(door_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) {
      if (errno == EMFILE || errno == ENFILE) fail_with_errno("a connection for each rank (ulimit -n)");
      return;
    }
    ucred peer{};
    socklen_t length = sizeof peer;
    getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length);
    const int process = peer.uid == getuid() ? pidfd_open(peer.pid, 0) : -1;
    if (process < 0)
      close(connection);  // a stranger
    else
      ranks_.push_back({.number = -1, .connection = connection, .process = process});
  }
}

void Supervisor::read(Rank& rank) {
  char buffer[1 << 16];
  ssize_t received = 0;
  while ((received = recv(rank.connection, buffer, sizeof buffer, 0)) > 0) {
    const std::string message(buffer, size_t(received));
    if (rank.number < 0) {
      welcome(rank, message);
      if (rank.connection < 0) return;
    } else {
      events_.push_back({rank.number, static_cast<Failure>(message[0]), message.substr(1)});
      const auto said = std::ranges::count_if(events_, [](const Event& e) { return e.failure.has_value(); });
      schedule(Clock::now() + (said == size_ ? seconds{0} : kGrace));
    }
  }
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // It is gone. mpirun knows whether that is in order, and else ends the others.
  close(std::exchange(rank.connection, -1));
  if (ending_ || rank.number < 0) return;
  const bool has_spoken = std::ranges::any_of(events_, [&](const Event& e) { return e.rank == rank.number; });
  if (!has_spoken) events_.push_back({rank.number, {}, {}});
  schedule(Clock::now() + kLeaving);
}

// Passes it its outputs. Without that it ends itself.
void Supervisor::welcome(Rank& rank, const std::string& number) {
  const int64_t said = std::atoll(number.c_str());
  const auto same = [&](const Rank& other) { return other.number == said && other.connection >= 0; };
  if (said < 0 || said >= size_ || std::ranges::any_of(ranks_, same)) {
    close(std::exchange(rank.connection, -1));
    return;
  }
  rank.number = said;
  int outputs[2] = {STDOUT_FILENO, STDERR_FILENO};
  if (said > 0) {
    outputs[0] = open(log_of(said).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (outputs[0] < 0) fail("cannot write {}: {}", log_of(said), std::strerror(errno));
    outputs[1] = outputs[0];
  }
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof outputs)] = {};
  msghdr message{};
  message.msg_iov = &data, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof outputs);
  std::memcpy(CMSG_DATA(header), outputs, sizeof outputs);
  sendmsg(rank.connection, &message, MSG_NOSIGNAL);
  if (said > 0) close(outputs[0]);
  if (++have_come_ == size_ && events_.empty() && !ending_) deadline_.reset();
}

void Supervisor::signal_ranks(int signal) const {
  for (const Rank& rank : ranks_) pidfd_send_signal(rank.process, signal, nullptr, 0);
}

/// Ends the ranks, whereupon mpirun clears up and ends; later mpirun too.
void Supervisor::end_job() {
  signal_ranks(SIGKILL);
  if (ending_ || have_come_ < size_) kill(mpirun_, SIGKILL);
  ending_ = true;
  deadline_ = Clock::now() + kClearing;
}

/// The first that is none of other ranks' ends; else the first of those.
const Supervisor::Event* Supervisor::cause() const {
  const auto is_own = [](const Event& event) { return event.failure != Failure::comm; };
  const auto own = std::ranges::find_if(events_, is_own);
  if (own != events_.end()) return &*own;
  return events_.empty() ? nullptr : &events_.front();
}

int Supervisor::conclude() const {
  const int status = *mpirun_status_;
  const bool ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  const Event* const event = cause();
  const bool said = event && event->failure;
  if (ended_well && !said) return 0;

  const bool too_early = stop_signal_ != 0 && WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGUSR1;
  if (!said && (impatient_ || too_early)) return 128 + stop_signal_;

  std::string text;
  bool mpirun_knows = false;
  if (said) {
    // What every rank says alike names no rank.
    const auto same = std::ranges::count_if(events_, [&](const Event& e) { return e.text == event->text; });
    text = same == size_ ? event->text : with_rank(event->rank, event->text);
  } else if (ending_ && have_come_ < size_) {
    mpirun_knows = true;
    text =
        fmt::format("{} of {} ranks did not start within {} s", size_ - have_come_, size_, kStarting.count());
  } else if (WIFSIGNALED(status) && !ending_) {
    text = fmt::format("mpirun, which holds the ranks together, was killed by {}",
                       signal_text(WTERMSIG(status)));
  } else if (const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
             event && code > 128) {  // of the rank that ended first
    text = fmt::format("rank {} was killed by {}", event->rank, signal_text(code - 128));
    if (code == 128 + SIGKILL) text += ": if nobody sent it, the machine has run out of memory";
  } else if (event) {
    mpirun_knows = true;
    text = fmt::format("rank {} ended with status {} without a reason", event->rank, code);
  } else {
    mpirun_knows = true;
    text = fmt::format("the ranks could not be started; mpirun ended with status {}", code);
  }
  if (!said && event && event->rank > 0) text += fmt::format("\nWhat it wrote last: {}", log_of(event->rank));
  if (const std::string log = trimmed(Env::system().read(mpirun_log())); mpirun_knows && !log.empty())
    text += fmt::format("\nmpirun says:\n{}", log);
  const bool internal = said && event->failure == Failure::internal;
  // The first rank's progress line may stand on the screen.
  std::fputs(fmt::format("{}weft: {}: {}\n", isatty(STDERR_FILENO) ? "\n" : "",
                         internal ? "internal error" : "error", text)
                 .c_str(),
             stderr);
  return said ? exit_status(*event->failure) : 1;
}

}  // namespace

int run_job(int64_t ranks, const std::vector<std::string>& arguments, const std::string& log_dir) {
  begin_own_job();
  if (const int64_t cores = usable_cores(); ranks > cores)
    std::fputs(fmt::format("weft: {} ranks share {} core{}: each has one thread, and they take turns\n",
                           ranks, cores, cores == 1 ? "" : "s")
                   .c_str(),
               stderr);
  const int status = Supervisor(ranks, log_dir).run(arguments);
  if (status > 128) end_by(status - 128);
  return status;
}

}  // namespace weft
