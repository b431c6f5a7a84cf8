#include "bench/serve/support/daemon_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace gpulet::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Duration kLook = std::chrono::milliseconds(5);
constexpr Duration kTimeToEnd = std::chrono::seconds(20);
constexpr int kCannotStart = 127;

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

DaemonProcess::DaemonProcess(const std::filesystem::path& program,
                             const std::vector<std::string>& arguments, std::filesystem::path log,
                             const std::string& mark)
    : log_(std::move(log)) {
  std::vector<std::string> words{program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment{mark};
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  const std::vector<char*> argument_pointers = pointers_to(words);
  const std::vector<char*> environment_pointers = pointers_to(environment);
  const int sink = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (sink < 0) throw std::runtime_error("cannot write " + log_.string());
  pid_ = ::fork();
  if (pid_ == 0) {  // only what may be called between fork and exec
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::setpgid(0, 0);  // Ctrl-C reaches the bench, which then ends its daemons
    ::dup2(sink, STDOUT_FILENO);
    ::dup2(sink, STDERR_FILENO);
    ::close_range(STDERR_FILENO + 1, ~0U, 0);  // the bench's own sockets
    ::execve(program.c_str(), argument_pointers.data(), environment_pointers.data());
    ::_exit(kCannotStart);
  }
  ::close(sink);
  if (pid_ < 0) throw std::runtime_error("cannot start " + program.string());
}

DaemonProcess::~DaemonProcess() {
  signal(SIGCONT);
  signal(SIGTERM);
  if (wait_for_end(kTimeToEnd)) return;
  signal(SIGKILL);
  wait_for_end(kTimeToEnd);
}

void DaemonProcess::signal(int number) const {
  if (!end_) ::kill(pid_, number);
}

bool DaemonProcess::alive() {
  int status = 0;
  if (!end_ && ::waitpid(pid_, &status, WNOHANG) == pid_) end_ = status;
  return !end_;
}

bool DaemonProcess::wait_for_end(Duration patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (alive()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

std::string DaemonProcess::log() const {
  std::ostringstream text;
  text << std::ifstream(log_).rdbuf();
  return text.str();
}

}  // namespace gpulet::bench
