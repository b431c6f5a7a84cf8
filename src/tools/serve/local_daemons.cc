#include "tools/serve/local_daemons.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>
#include <thread>
#include <utility>

#include "gpulet/base/files.h"

namespace gpulet::tools {
namespace {

constexpr auto kStopWithin = std::chrono::seconds(20);
constexpr auto kPoll = std::chrono::milliseconds(20);
constexpr std::size_t kLogLines = 12;
constexpr int kNotStarted = 127;

// In the child: only calls that are safe between fork and exec.
[[noreturn]] void become(char* const* arguments, int log, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kNotStarted);  // it ended before prctl
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  const int input = ::open("/dev/null", O_RDONLY);
  ::dup2(input, STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execv(arguments[0], arguments);
  ::_exit(kNotStarted);
}

}  // namespace

Result<LocalDaemon> LocalDaemon::start(std::string name, const std::filesystem::path& program,
                                       const std::vector<std::string>& arguments,
                                       std::filesystem::path log) {
  const FileDescriptor output(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!output.valid()) {
    return Status(StatusCode::unavailable,
                  fmt::format("cannot write {}: {}", log.string(), std::strerror(errno)));
  }
  std::vector<std::string> words{program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t process = ::fork();
  if (process == 0) become(pointers.data(), output.get(), parent);
  if (process < 0) {
    return Status(StatusCode::unavailable,
                  fmt::format("cannot start {}: {}", program.string(), std::strerror(errno)));
  }
  return LocalDaemon(std::move(name), process, std::move(log));
}

LocalDaemon::LocalDaemon(LocalDaemon&& other) noexcept
    : name_(std::move(other.name_)),
      process_(std::exchange(other.process_, 0)),
      log_(std::move(other.log_)),
      ended_(std::move(other.ended_)),
      failed_(other.failed_) {}

LocalDaemon::~LocalDaemon() {
  if (process_ == 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

std::optional<std::string> LocalDaemon::end() {
  if (process_ == 0) return ended_;
  int how = 0;
  if (::waitpid(process_, &how, WNOHANG) != process_) return std::nullopt;
  process_ = 0;
  failed_ = !WIFEXITED(how) || WEXITSTATUS(how) != 0;
  ended_ = WIFEXITED(how) ? fmt::format("ended with exit code {}", WEXITSTATUS(how))
                          : fmt::format("was killed by signal {}", WTERMSIG(how));
  return ended_;
}

Status LocalDaemon::stop() {
  const auto failure = [this](const std::string& why) {
    return Status(StatusCode::unavailable, fmt::format("{} {}", name_, why));
  };
  if (process_ != 0) ::kill(process_, SIGTERM);
  for (const auto until = std::chrono::steady_clock::now() + kStopWithin; !end();) {
    if (std::chrono::steady_clock::now() >= until) {
      ::kill(process_, SIGKILL);
      ::waitpid(std::exchange(process_, 0), nullptr, 0);
      return failure("did not stop in time and was killed");
    }
    std::this_thread::sleep_for(kPoll);
  }
  return failed_ ? failure(ended_) : Status();
}

std::string LocalDaemon::end_of_log() const {
  std::ifstream log(log_);
  std::deque<std::string> last;
  for (std::string line; std::getline(log, line);) {
    last.push_back(std::move(line));
    if (last.size() > kLogLines) last.pop_front();
  }
  std::string text;
  for (const std::string& line : last) text += "    | " + line + '\n';
  return text;
}

}  // namespace gpulet::tools
