#include "backend/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "gpulet/base/files.h"
#include "gpulet/confine/confine.h"
#include "gpulet/executor/executor.h"

namespace gpulet::backend {

// ---- the environment of a proxy

namespace {

using namespace std::string_view_literals;

constexpr std::array kNames{"PATH"sv,
                            "HOME"sv,
                            "LANG"sv,
                            "LANGUAGE"sv,
                            "TZ"sv,
                            "TMPDIR"sv,
                            "LD_LIBRARY_PATH"sv,
                            "USER"sv,
                            "LOGNAME"sv,
                            "GLIBC_TUNABLES"sv,
                            "XDG_CACHE_HOME"sv,
                            "GPULET_ONNXRUNTIME"sv,
                            "ASAN_OPTIONS"sv,
                            "LSAN_OPTIONS"sv,
                            "TSAN_OPTIONS"sv,
                            "UBSAN_OPTIONS"sv};

constexpr std::array kPrefixes{"LC_"sv,       "CUDA_"sv,  "NVIDIA_"sv, "CUBLAS_"sv, "CUBLASLT_"sv,
                               "CUDNN_"sv,    "OMP_"sv,   "GOMP_"sv,   "KMP_"sv,    "MKL_"sv,
                               "OPENBLAS_"sv, "DNNL_"sv,  "ONEDNN_"sv, "TORCH_"sv,  "PYTORCH_"sv,
                               "ATEN_"sv,     "MALLOC_"sv};

std::string_view variable_name(std::string_view entry) { return entry.substr(0, entry.find('=')); }

bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const auto one = names.substr(0, names.find(','));
    if (one == name) return true;
    names.remove_prefix(std::min(one.size() + 1, names.size()));
  }
  return false;
}

// The value of kPassedOnVariable in this environment.
std::string_view listed_in(const char* const* own) {
  for (; *own != nullptr; ++own) {
    const std::string_view entry(*own);
    if (variable_name(entry) == kPassedOnVariable)
      return entry.substr(variable_name(entry).size() + 1);
  }
  return {};
}

// Whether every proxy gets the variable: those that configure the C library, the loader, numeric
// libraries, CUDA, LibTorch and ONNX Runtime. Other variables of gpulet's own come from the share.
bool is_passed_on(std::string_view name) {
  const auto is_prefix = [name](std::string_view prefix) { return name.starts_with(prefix); };
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(), is_prefix);
}

}  // namespace

std::vector<std::string> proxy_environment(const char* const* own,
                                           const std::vector<std::string>& more,
                                           const std::map<std::string, std::string>& overrides) {
  const auto listed = listed_in(own);
  std::vector<std::string> passed;
  for (; *own != nullptr; ++own) {
    const std::string_view entry(*own);
    const std::string name(variable_name(entry));
    if (name.size() == entry.size() || overrides.contains(name)) continue;
    const bool configured = std::find(more.begin(), more.end(), name) != more.end();
    if (configured || is_passed_on(name) || lists(listed, name)) passed.emplace_back(entry);
  }
  for (const auto& [name, value] : overrides) passed.push_back(fmt::format("{}={}", name, value));
  return passed;
}

const std::map<std::string, std::string>& environment_without_share() {
  static const std::map<std::string, std::string> environment{
      {"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}, {"MKL_NUM_THREADS", "1"}};
  return environment;
}

// ---- starting

namespace {

constexpr int kFirstDescriptor = 3;
constexpr int kBackgroundNice = 19;  // the lowest priority: only idle time

// On Linux, priorities belong to threads: id 0 is the calling one.
int own_nice() { return ::getpriority(PRIO_PROCESS, 0); }
bool set_nice(id_t thread, int nice) { return ::setpriority(PRIO_PROCESS, thread, nice) == 0; }

// Every process may lower its priority, but not every one may raise it again. Tries on a thread;
// false where the machine has none left.
bool may_raise_priority() {
  bool raised = false;
  try {
    std::thread([&raised, nice = own_nice()] {
      raised = set_nice(0, nice + 1) && set_nice(0, nice);
    }).join();
  } catch (const std::system_error&) {
    return false;
  }
  return raised;
}

// Lowers the calling thread's priority, which a child inherits, until it is destroyed.
class LoweredPriority {
 public:
  LoweredPriority() : before_(own_nice()) { set_nice(0, before_ + kBackgroundNice); }
  ~LoweredPriority() { set_nice(0, before_); }
  LoweredPriority(const LoweredPriority&) = delete;
  LoweredPriority& operator=(const LoweredPriority&) = delete;

 private:
  const int before_;
};

// Adds the variables that configure the program's confinement (confine.h).
std::map<std::string, std::string> confined_environment(const SpawnOptions& options) {
  auto environment = options.environment;
  environment[confine::kSandboxVariable] = options.confinement.sandbox ? "on" : "off";
  environment[executor::kNativeModelsVariable] = options.confinement.native_models ? "on" : "off";
  if (!options.confinement.onnxruntime.empty())
    environment[executor::kOnnxRuntimeVariable] = options.confinement.onnxruntime.string();
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

// The functions below run in the child, between fork and exec. Other threads of the parent may have
// held locks, which are never released here: only system calls, and no memory allocation.

struct Child {
  const char* program;
  char* const* arguments;
  char* const* environment;
  std::span<const FileDescriptor> sources;  // numbers above all targets
  int program_file;                         // the same; -1: could not be opened
  int failure_pipe;                         // the same
  int input;                                // the same; -1: the standard streams stay
  int output;                               // the same
  const ProxyUser* user;                    // null: unchanged
  bool leaves_network;                      // if it has the privilege
};

bool reset_signals() {
  sigset_t none;
  sigemptyset(&none);
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &usual, nullptr);
  return ::sigprocmask(SIG_SETMASK, &none, nullptr) == 0;
}

// Uses system calls because the C library's functions would signal the parent's other threads,
// which do not exist here.
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
  constexpr mode_t kUserOnlyMask = 077;
  constexpr rlimit kNoCore{0, 0};
  int next = kFirstDescriptor;
  bool ready = ::setpgid(0, 0) == 0 && reset_signals();
  if (child.output >= 0) {
    ready = ready && ::dup2(child.input, STDIN_FILENO) >= 0 &&
            ::dup2(child.output, STDOUT_FILENO) >= 0 && ::dup2(child.output, STDERR_FILENO) >= 0;
  }
  for (const FileDescriptor& source : child.sources)
    ready = ready && ::dup2(source.get(), next++) >= 0;
  const int pipe = next++;
  ready = ready && ::dup3(child.failure_pipe, pipe, O_CLOEXEC) >= 0;
  if (!ready) fail_child(child.failure_pipe);
  const int program = child.program_file < 0 ? -1 : ::dup3(child.program_file, next++, O_CLOEXEC);
  ::umask(kUserOnlyMask);
  ready = ::syscall(SYS_close_range, next, ~0U, 0) == 0 && ::setrlimit(RLIMIT_CORE, &kNoCore) == 0;
  if (!ready) fail_child(pipe);
  // If this fails, the program tries it in a user namespace, and logs if that fails too.
  if (child.leaves_network) ::unshare(CLONE_NEWNET);
  if (child.user != nullptr && !become(*child.user)) fail_child(pipe);
  // Models must not inherit capabilities that a service manager gave to the backend. Old kernels
  // lack this call.
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0UL, 0UL, 0UL);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL) != 0) fail_child(pipe);
  ::execve(child.program, child.arguments, child.environment);
  // Only the parent's user may enter the directory: execute the open file.
  if (errno == EACCES && program >= 0)
    ::syscall(SYS_execveat, program, "", child.arguments, child.environment, AT_EMPTY_PATH);
  fail_child(pipe);
}

// The functions below run in the parent.

// Waits until the child has executed the program (0) or has sent its errno.
int read_failure(int pipe) {
  int error = 0;
  for (;;) {
    const auto bytes = ::read(pipe, &error, sizeof error);
    if (bytes < 0 && errno == EINTR) continue;
    return bytes == sizeof error ? error : 0;
  }
}

}  // namespace

Result<pid_t> spawn(const SpawnOptions& options) {
  const auto failed = [&](int error) {
    const auto as_user = options.user ? " as user " + options.user->name : "";
    return Status(
        error == ENOENT ? StatusCode::not_found : StatusCode::unavailable,
        fmt::format("cannot start {}{}: {}", options.program.string(), as_user, ::strerror(error)));
  };
  // Sources must be above all targets, or dup2 would overwrite them. The pipe and the program come
  // after the descriptors.
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

  FileDescriptor input;
  FileDescriptor output;
  if (options.output >= 0) {
    const FileDescriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    input = FileDescriptor(::fcntl(nothing.get(), F_DUPFD_CLOEXEC, above));
    output = FileDescriptor(::fcntl(options.output, F_DUPFD_CLOEXEC, above));
    if (!input.valid() || !output.valid()) return failed(errno);
  }

  std::vector<std::string> arguments{options.program.string()};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  auto environment =
      proxy_environment(environ, options.confinement.variables, confined_environment(options));
  const auto argument_pointers = as_pointers(arguments);
  const auto environment_pointers = as_pointers(environment);
  const Child child{options.program.c_str(),
                    argument_pointers.data(),
                    environment_pointers.data(),
                    sources,
                    program.get(),
                    writing_above.get(),
                    input.get(),
                    output.get(),
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

void raise_priority(pid_t process) {
  const int nice = own_nice();
  std::error_code error;
  const auto tasks = std::filesystem::path("/proc") / std::to_string(process) / "task";
  for (std::filesystem::directory_iterator entry(tasks, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto thread = std::strtoul(entry->path().filename().c_str(), nullptr, 10);
    set_nice(static_cast<id_t>(thread), nice);  // fails for a thread that has just ended
  }
}

// ---- watching

namespace {

using boost::system::error_code;

// Of a status of waitpid.
Status describe_end(const std::string& name, int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return {StatusCode::unavailable,
            fmt::format("{} was killed by signal {} ({})", name, signal, ::strsignal(signal))};
  }
  if (WEXITSTATUS(wait_status) == 0) return {};
  return {StatusCode::unavailable,
          fmt::format("{} ended with exit code {}", name, WEXITSTATUS(wait_status))};
}

}  // namespace

ChildProcess::ChildProcess(const net::asio::any_io_executor& executor, pid_t process)
    : process_(process), pidfd_(executor) {}

Status ChildProcess::watch(OnEnd on_end) {
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, process_, 0));
  if (pidfd < 0) {
    return {StatusCode::unavailable,
            fmt::format("cannot watch {}: {}", name(), std::strerror(errno))};
  }
  on_end_ = std::move(on_end);
  pidfd_.assign(pidfd);
  wait();
  return {};
}

void ChildProcess::wait() {
  pidfd_.async_wait(net::asio::posix::stream_descriptor::wait_read,
                    [this, watch = alive_.watch()](const error_code& error) {
                      if (!error && watch.alive()) reap();
                    });
}

void ChildProcess::reap() {
  int status = 0;
  if (ended_) return;
  if (::waitpid(process_, &status, WNOHANG) != process_) {
    // Asio may deliver an event of an earlier descriptor with the same number.
    wait();
    return;
  }
  ended_ = true;
  if (WIFSIGNALED(status)) {
    process_end_.signal = static_cast<std::uint8_t>(WTERMSIG(status));
  } else {
    process_end_.exit_status = static_cast<std::uint8_t>(WEXITSTATUS(status));
  }
  const auto on_end = std::exchange(on_end_, nullptr);
  on_end(describe_end(name(), status));
}

void ChildProcess::kill() const {
  if (!ended_) ::kill(process_, SIGKILL);  // not reaped yet, so the id is not reused
}

void ChildProcess::end(std::chrono::milliseconds timeout) {
  on_end_ = nullptr;
  if (!ended_ && timeout.count() > 0) {
    pollfd ending{pidfd_.native_handle(), POLLIN, 0};
    ::poll(&ending, 1, static_cast<int>(timeout.count()));
  }
  error_code ignored;
  pidfd_.close(ignored);
  if (ended_) return;
  kill();
  ::waitpid(process_, nullptr, 0);
  ended_ = true;
}

}  // namespace gpulet::backend
