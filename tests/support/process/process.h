// Programs as processes of a test: started with arguments, stopped, continued and killed, and ended
// with the test. Etcd: the program from Debian's etcd-server, with one member on loopback ports.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace gpulet::testing {

// Polls the condition, and leaves the cores to the processes meanwhile. Returns false after 20 s.
[[nodiscard]] bool comes_true(const std::function<bool()>& condition,
                              std::chrono::milliseconds patience = std::chrono::seconds(20));

// A free port on loopback, kept from the other tests of this machine while this process runs.
[[nodiscard]] std::uint16_t free_port();

class Process {
 public:
  // Throws if the program cannot be started.
  Process(const std::string& program, std::vector<std::string> arguments);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number);
  // Sends the signal and waits until the process has ended; signal(SIGSTOP) does not keep it from
  // that. Nothing if it has ended.
  void end(int signal);
  // Its exit status or, negative, the signal that ended it. Empty: it runs.
  [[nodiscard]] std::optional<int> result();
  [[nodiscard]] std::set<pid_t> children() const;

 private:
  pid_t id_ = 0;
  bool stopped_ = false;
};

// A program that was built here: build/.../bin/PROGRAM --config FILE.
[[nodiscard]] std::unique_ptr<Process> start_daemon(const std::string& program,
                                                    const std::filesystem::path& config);

class Etcd {
 public:
  // Starts etcd and waits until it answers. Throws with the fix if it is not installed.
  explicit Etcd(std::vector<std::string> more_arguments = {}, std::string scheme = "http");

  [[nodiscard]] std::string endpoint() const;  // HOST:PORT
  [[nodiscard]] std::uint16_t port() const { return client_port_; }
  // Between these two, it does nothing.
  void stop();
  void resume();
  void kill();
  // With the data that it had, at the same address.
  void restart();
  // The same without data.
  void wipe();
  // Runs etcdctl with these arguments. Returns whether it succeeded.
  bool control(const std::vector<std::string>& arguments) const;

 private:
  void start();
  [[nodiscard]] bool answers() const;

  support::TemporaryFolder folder_;
  std::vector<std::string> more_arguments_;
  std::string scheme_;
  std::uint16_t client_port_;
  std::uint16_t peer_port_;
  int lives_ = 0;  // data folders so far
  std::unique_ptr<Process> process_;
};

}  // namespace gpulet::testing
