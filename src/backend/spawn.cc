#include "backend/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>

#include "backend/file_descriptor.h"
#include "backend/proxy_environment.h"
#include "gpulet/confine/confine.h"

namespace gpulet::backend {
namespace {

constexpr int kFirstDescriptor = 3;
constexpr int kBackgroundNice = 19;  // the least weight: what is left over

// Priorities belong to threads here: id_t 0 is the calling one.
int own_nice() { return ::getpriority(PRIO_PROCESS, 0); }
bool set_nice(id_t thread, int nice) { return ::setpriority(PRIO_PROCESS, thread, nice) == 0; }

// Lowering a priority is anybody's right, raising it again is not: a thread of its own tries.
bool may_raise_priority() {
  bool raised = false;
  std::thread([&raised, nice = own_nice()] {
    raised = set_nice(0, nice + 1) && set_nice(0, nice);
  }).join();
  return raised;
}

// The calling thread's priority for as long as this lives: a child inherits it.
class LoweredPriority {
 public:
  LoweredPriority() : before_(own_nice()) { set_nice(0, before_ + kBackgroundNice); }
  ~LoweredPriority() { set_nice(0, before_); }
  LoweredPriority(const LoweredPriority&) = delete;
  LoweredPriority& operator=(const LoweredPriority&) = delete;

 private:
  const int before_;
};

// What the program is told of its confinement (confine.h).
std::map<std::string, std::string> told_environment(const SpawnOptions& options) {
  auto environment = options.environment;
  environment[confine::kSandboxVariable] = options.confinement.sandbox ? "on" : "off";
  environment[confine::kNetworkVariable] = confine::network_namespace();
  return environment;
}

std::vector<char*> as_pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (auto& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// ---- The child, between fork and exec. Other threads of the parent held locks that nobody will
// release here: nothing but system calls, and no memory but what was made before.

struct Child {
  const char* program;
  char* const* arguments;
  char* const* environment;
  std::span<const FileDescriptor> sources;  // each above every number used below
  int program_file;                         // the same; -1: it could not be opened
  int failure_pipe;                         // the same
  const ProxyUser* user;                    // null: as before
  bool leaves_network;                      // where it has the right to
};

bool reset_signals() {
  sigset_t none;
  sigemptyset(&none);
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &usual, nullptr);
  return ::sigprocmask(SIG_SETMASK, &none, nullptr) == 0;
}

// The library's own versions tell every other thread of the process: here there is none, and its
// list of them is the parent's.
bool become(const ProxyUser& user) {
  return ::syscall(SYS_setgroups, user.groups.size(), user.groups.data()) == 0 &&
         ::syscall(SYS_setresgid, user.group, user.group, user.group) == 0 &&
         ::syscall(SYS_setresuid, user.user, user.user, user.user) == 0;
}

[[noreturn]] void fail_child(int pipe) {
  const int error = errno;
  const auto written = ::write(pipe, &error, sizeof error);
  ::_exit(written == sizeof error ? 1 : 2);
}

[[noreturn]] void run_child(const Child& child) {
  constexpr mode_t kForItsUserAlone = 077;
  constexpr rlimit kNoCore{0, 0};
  int next = kFirstDescriptor;
  bool ready = ::setpgid(0, 0) == 0 && reset_signals();
  for (const FileDescriptor& source : child.sources)
    ready = ready && ::dup2(source.get(), next++) >= 0;
  const int pipe = next++;
  ready = ready && ::dup3(child.failure_pipe, pipe, O_CLOEXEC) >= 0;
  if (!ready) fail_child(child.failure_pipe);
  const int program = child.program_file < 0 ? -1 : ::dup3(child.program_file, next++, O_CLOEXEC);
  ::umask(kForItsUserAlone);
  ready = ::syscall(SYS_close_range, next, ~0U, 0) == 0 && ::setrlimit(RLIMIT_CORE, &kNoCore) == 0;
  if (!ready) fail_child(pipe);
  // The program tries again by way of a user namespace, and tells where that fails as well.
  if (child.leaves_network) ::unshare(CLONE_NEWNET);
  if (child.user != nullptr && !become(*child.user)) fail_child(pipe);
  // Rights that a service manager gave to the backend are not for its models. Old kernels have
  // none.
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0UL, 0UL, 0UL);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL) != 0) fail_child(pipe);
  ::execve(child.program, child.arguments, child.environment);
  // A folder on the way that only the parent's user may enter.
  if (errno == EACCES && program >= 0)
    ::syscall(SYS_execveat, program, "", child.arguments, child.environment, AT_EMPTY_PATH);
  fail_child(pipe);
}

// ---- The parent.

// Waits until the child has become the program (0), or has told why not.
int read_failure(int pipe) {
  int error = 0;
  for (;;) {
    const auto bytes = ::read(pipe, &error, sizeof error);
    if (bytes < 0 && errno == EINTR) continue;
    return bytes == sizeof error ? error : 0;
  }
}

std::string as_user(const SpawnOptions& options) {
  return options.user ? " as user " + options.user->name : "";
}

}  // namespace

Result<pid_t> spawn(const SpawnOptions& options) {
  const auto failed = [&](int error) {
    return Status(
        error == ENOENT ? StatusCode::not_found : StatusCode::unavailable,
        "cannot start " + options.program.string() + as_user(options) + ": " + ::strerror(error));
  };
  // Above every number that the child uses: a target that is another one's source would be
  // overwritten before its turn. After the descriptors come the pipe and the program.
  const int above = kFirstDescriptor + static_cast<int>(options.descriptors.size()) + 2;
  std::vector<FileDescriptor> sources;
  for (const int descriptor : options.descriptors) {
    sources.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, above));
    if (!sources.back().valid()) return failed(errno);
  }
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failed(errno);
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  FileDescriptor writing_above(::fcntl(writing.get(), F_DUPFD_CLOEXEC, above));
  if (!writing_above.valid()) return failed(errno);
  const FileDescriptor opened(::open(options.program.c_str(), O_PATH | O_CLOEXEC));
  const FileDescriptor program(opened.valid() ? ::fcntl(opened.get(), F_DUPFD_CLOEXEC, above) : -1);

  std::vector<std::string> arguments{options.program.string()};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  auto environment =
      proxy_environment(environ, options.confinement.variables, told_environment(options));
  const auto argument_pointers = as_pointers(arguments);
  const auto environment_pointers = as_pointers(environment);
  const Child child{options.program.c_str(),
                    argument_pointers.data(),
                    environment_pointers.data(),
                    sources,
                    program.get(),
                    writing_above.get(),
                    options.user ? &*options.user : nullptr,
                    options.confinement.sandbox};
  std::optional<LoweredPriority> lowered;
  if (options.in_background && may_raise_priority()) lowered.emplace();
  const pid_t process = ::fork();
  if (process == 0) run_child(child);
  const int fork_error = errno;
  lowered.reset();
  if (process < 0) return failed(fork_error);
  writing.reset();
  writing_above.reset();
  if (const int error = read_failure(reading.get()); error != 0) {
    ::waitpid(process, nullptr, 0);
    return failed(error);
  }
  return process;
}

const std::map<std::string, std::string>& environment_of_nobody() {
  static const std::map<std::string, std::string> environment{
      {"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}, {"MKL_NUM_THREADS", "1"}};
  return environment;
}

void raise_priority(pid_t process) {
  const int nice = own_nice();
  std::error_code error;
  const auto tasks = std::filesystem::path("/proc") / std::to_string(process) / "task";
  for (std::filesystem::directory_iterator entry(tasks, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto thread = std::strtoul(entry->path().filename().c_str(), nullptr, 10);
    set_nice(static_cast<id_t>(thread), nice);  // a thread that has just ended needs none
  }
}

Status describe_end(pid_t process, int wait_status) {
  const auto name = "process " + std::to_string(process);
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return {StatusCode::unavailable, name + " was killed by signal " + std::to_string(signal) +
                                         " (" + ::strsignal(signal) + ")"};
  }
  if (WEXITSTATUS(wait_status) == 0) return {};
  return {StatusCode::unavailable,
          name + " ended with exit code " + std::to_string(WEXITSTATUS(wait_status))};
}

}  // namespace gpulet::backend
