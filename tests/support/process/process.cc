#include "tests/support/process/process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "gpulet/net/asio.h"

namespace gpulet::testing {

bool comes_true(const std::function<bool()>& condition, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return condition();
}

namespace {

// Takes the name of the port among the tests of this machine, until this process ends. Returns
// whether no other process has it.
bool reserve(std::uint16_t port) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  // An abstract name: its first byte is zero, and it leaves no file behind.
  const std::string text = "gpulet-test-port-" + std::to_string(port);
  text.copy(name.sun_path + 1, text.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  const int descriptor = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) throw std::runtime_error("cannot reserve a port: no socket");
  if (::bind(descriptor, reinterpret_cast<const sockaddr*>(&name), size) == 0) return true;
  ::close(descriptor);
  return false;
}

}  // namespace

// Below the ports that the system gives to connections (ip_local_port_range), so that no connection
// takes it before the program that listens there has started.
std::uint16_t free_port() {
  constexpr std::uint32_t kFirst = 10000;
  constexpr std::uint32_t kCount = 22768;
  constexpr std::uint32_t kPerProcess = 61;
  static std::uint32_t next = static_cast<std::uint32_t>(::getpid()) * kPerProcess;
  net::asio::io_context io;
  while (true) {
    const auto port = static_cast<std::uint16_t>(kFirst + next++ % kCount);
    if (!reserve(port)) continue;
    net::asio::ip::tcp::acceptor acceptor(io, net::asio::ip::tcp::v4());
    boost::system::error_code error;
    acceptor.bind({net::asio::ip::address_v4::loopback(), port}, error);
    if (!error) return port;
  }
}

Process::Process(const std::string& program, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program);
  std::vector<char*> words;
  for (std::string& word : arguments) words.push_back(word.data());
  words.push_back(nullptr);
  if (::posix_spawnp(&id_, program.c_str(), nullptr, nullptr, words.data(), environ) != 0) {
    id_ = 0;
    throw std::runtime_error("cannot start " + program);
  }
}

Process::~Process() { end(SIGTERM); }

void Process::signal(int number) {
  if (id_ == 0) return;
  if (number == SIGSTOP || number == SIGCONT) stopped_ = number == SIGSTOP;
  ::kill(id_, number);
}

void Process::end(int signal) {
  if (id_ == 0) return;
  ::kill(id_, signal);
  // Not to one that runs: it would cancel the SIGSTOP by which LeakSanitizer halts an ending
  // process, which then waits for ever.
  if (stopped_) ::kill(id_, SIGCONT);
  ::waitpid(id_, nullptr, 0);
  id_ = 0;
}

std::optional<int> Process::result() {
  if (id_ == 0) return 0;
  int status = 0;
  if (::waitpid(id_, &status, WNOHANG) != id_) return std::nullopt;
  id_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::set<pid_t> Process::children() const {
  const std::string id = std::to_string(id_);
  std::ifstream list("/proc/" + id + "/task/" + id + "/children");
  std::set<pid_t> found;
  for (pid_t child = 0; list >> child;) found.insert(child);
  return found;
}

std::unique_ptr<Process> start_daemon(const std::string& program,
                                      const std::filesystem::path& config) {
  return std::make_unique<Process>(std::string(GPULET_BINARY_DIR) + "/bin/" + program,
                                   std::vector<std::string>{"--config", config.string()});
}

Etcd::Etcd(std::vector<std::string> more_arguments, std::string scheme)
    : more_arguments_(std::move(more_arguments)),
      scheme_(std::move(scheme)),
      client_port_(free_port()),
      peer_port_(free_port()) {
  start();
}

std::string Etcd::endpoint() const { return "127.0.0.1:" + std::to_string(client_port_); }

void Etcd::start() {
  const std::string client = scheme_ + "://" + endpoint();
  const std::string peer = "http://127.0.0.1:" + std::to_string(peer_port_);
  std::vector<std::string> arguments{"--name",
                                     "test",
                                     "--data-dir",
                                     folder_.path() / ("data" + std::to_string(lives_)),
                                     "--listen-client-urls",
                                     client,
                                     "--advertise-client-urls",
                                     client,
                                     "--listen-peer-urls",
                                     peer,
                                     "--initial-advertise-peer-urls",
                                     peer,
                                     "--initial-cluster",
                                     "test=" + peer,
                                     "--logger",
                                     "zap",
                                     "--log-level",
                                     "fatal"};
  arguments.insert(arguments.end(), more_arguments_.begin(), more_arguments_.end());
  try {
    process_ = std::make_unique<Process>("etcd", std::move(arguments));
  } catch (const std::exception&) {
    throw std::runtime_error("etcd cannot be started: install it with scripts/setup --for test");
  }
  if (!comes_true([this] { return answers(); }))
    throw std::runtime_error("etcd does not answer at " + endpoint());
}

bool Etcd::answers() const {
  net::asio::io_context io;
  net::asio::ip::tcp::socket socket(io);
  boost::system::error_code error;
  socket.connect({net::asio::ip::address_v4::loopback(), client_port_}, error);
  return !error;
}

void Etcd::stop() { process_->signal(SIGSTOP); }
void Etcd::resume() { process_->signal(SIGCONT); }
void Etcd::kill() { process_->end(SIGKILL); }

void Etcd::restart() {
  process_->end(SIGKILL);
  start();
}

void Etcd::wipe() {
  process_->end(SIGKILL);
  ++lives_;
  start();
}

bool Etcd::control(const std::vector<std::string>& arguments) const {
  std::vector<std::string> words{"ETCDCTL_API=3", "etcdctl", "--endpoints", endpoint()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  Process process("env", std::move(words));
  std::optional<int> result;
  return comes_true([&] { return (result = process.result()).has_value(); }) && *result == 0;
}

}  // namespace gpulet::testing
