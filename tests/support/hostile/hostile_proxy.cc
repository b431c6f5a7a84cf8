// gpulet-proxy-hostile: a proxy whose models attack their environment. The model's name selects the
// attack. The input is one number; the output is 0 if the attack succeeded, else its errno or
// count.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gpulet/executor/executor.h"
#include "proxy/proxy.h"

namespace {

using namespace gpulet;

std::int64_t outcome(bool success) { return success ? 0 : errno; }

std::int64_t make_socket(int domain) { return outcome(::socket(domain, SOCK_STREAM, 0) >= 0); }

// The number of network interfaces.
std::int64_t interfaces() {
  std::ifstream lines("/proc/self/net/dev");
  std::int64_t count = 0;
  for (std::string line; std::getline(lines, line);)
    count += line.find(':') == std::string::npos ? 0 : 1;
  return count;
}

std::int64_t read_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char byte = 0;
  const bool read = file >= 0 && ::read(file, &byte, 1) >= 0;
  return outcome(read);
}

std::int64_t run_shell() {
  const char* const arguments[] = {"/bin/sh", "-c", "exit 0", nullptr};
  ::execve(arguments[0], const_cast<char* const*>(arguments), environ);
  return errno;
}

std::int64_t start_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  const auto result = outcome(child > 0);
  if (child > 0) ::waitpid(child, nullptr, 0);
  return result;
}

std::int64_t start_thread() {
  std::int64_t result = -1;
  std::thread([&result] { result = 0; }).join();
  return result;
}

std::int64_t allocate(std::int64_t megabytes) {
  constexpr std::size_t kPage = 4096;
  const auto bytes = static_cast<std::size_t>(megabytes) << 20U;
  std::vector<char> memory(bytes);
  for (std::size_t i = 0; i < bytes; i += kPage) memory[i] = 1;
  return memory[bytes / 2];
}

// Writes that many megabytes of forged log lines.
std::int64_t print(std::int64_t megabytes) {
  const std::string line = "[2026-01-31 12:00:00.000] [backend] [info] all is well\x1b[1A\n";
  std::string lines;
  while (lines.size() < (std::size_t{1} << 20U)) lines += line;
  std::int64_t written = 0;
  for (std::int64_t i = 0; i < megabytes; ++i) {
    for (std::string_view rest = lines; !rest.empty();) {
      const ssize_t bytes = ::write(STDOUT_FILENO, rest.data(), rest.size());
      if (bytes < 0) return outcome(false);
      rest.remove_prefix(static_cast<std::size_t>(bytes));
      written += bytes;
    }
  }
  return written >> 20;
}

// Leaves a file in memory that belongs to no process.
std::int64_t leave_file() {
  const char* const file = "/dev/shm/gpulet-hostile";
  const int made = ::open(file, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (made >= 0) ::unlink(file);
  return outcome(made >= 0);
}

std::int64_t seen_secret() { return std::getenv("GPULET_TEST_SECRET") != nullptr ? 1 : 0; }

std::int64_t act(const std::string& model, std::int64_t number) {
  const auto process = static_cast<pid_t>(number);
  const auto of_process = [&](const char* file) {
    return read_file("/proc/" + std::to_string(process) + "/" + file);
  };
  if (model == "tcp") return make_socket(AF_INET);
  if (model == "tcp6") return make_socket(AF_INET6);
  if (model == "netlink") return make_socket(AF_NETLINK);
  if (model == "unix") return make_socket(AF_UNIX);
  if (model == "interfaces") return interfaces();
  if (model == "file") return leave_file();
  if (model == "secret") return seen_secret();
  if (model == "environ") return of_process("environ");
  if (model == "memory") return of_process("mem");
  if (model == "ptrace") return outcome(::ptrace(PTRACE_ATTACH, process, nullptr, nullptr) == 0);
  if (model == "signal") return outcome(::kill(process, 0) == 0);
  if (model == "signal_itself") return outcome(::kill(::getpid(), 0) == 0);
  if (model == "exec") return run_shell();
  if (model == "fork") return start_process();
  if (model == "thread") return start_thread();
  if (model == "namespace") return outcome(::unshare(CLONE_NEWUSER) == 0);
  if (model == "bpf") return outcome(::syscall(SYS_bpf, 0, nullptr, 0) == 0);
  if (model == "io_uring") return outcome(::syscall(SYS_io_uring_setup, 0, nullptr) == 0);
  if (model == "keyctl") return outcome(::syscall(SYS_keyctl, 0, 0, 0, 0, 0) == 0);
  if (model == "allocate") return allocate(number);
  if (model == "print") return print(number);
  return -1;
}

class HostileExecutor final : public executor::Executor {
 public:
  Result<std::uint32_t> load(const ModelToLoad& model) override {
    models_.insert(model.name);
    return 0U;
  }
  Result<std::size_t> run(const executor::BatchToRun& batch) override {
    std::int64_t number = 0;
    std::memcpy(&number, batch.input.data(), std::min(batch.input.size(), sizeof number));
    const auto result = act(std::string(batch.model), number);
    std::memcpy(batch.output.data(), &result, sizeof result);
    return sizeof result;
  }

 private:
  std::set<std::string> models_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  proxy::Program program;
  program.make_executor = [] { return std::make_unique<HostileExecutor>(); };
  return proxy::run(arguments.subspan(1), program);
}
