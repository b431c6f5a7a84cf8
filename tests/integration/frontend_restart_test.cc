// A frontend that is killed and restarted: the backend keeps its proxies, and serving continues.
// All daemons are separate processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/net/asio.h"
#include "gpulet/profile/store.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/serve/world.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

class Process {
 public:
  Process(const std::string& program, const std::filesystem::path& config) {
    std::string path = std::string(GPULET_BINARY_DIR) + "/bin/" + program;
    std::vector<std::string> words{path, "--config", config.string()};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (::posix_spawn(&id_, path.c_str(), nullptr, nullptr, arguments.data(), environ) != 0) {
      throw std::runtime_error("cannot start " + path);
    }
  }
  ~Process() { end(SIGTERM); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void end(int signal) {
    if (id_ == 0) return;
    ::kill(id_, signal);
    ::waitpid(id_, nullptr, 0);
    id_ = 0;
  }
  [[nodiscard]] std::set<pid_t> children() const {
    const std::string id = std::to_string(id_);
    std::ifstream list("/proc/" + id + "/task/" + id + "/children");
    std::set<pid_t> found;
    for (pid_t child = 0; list >> child;) found.insert(child);
    return found;
  }

 private:
  pid_t id_ = 0;
};

std::uint16_t free_port() {
  net::asio::io_context io;
  const net::asio::ip::tcp::acceptor acceptor(io, {net::asio::ip::address_v4::loopback(), 0});
  return acceptor.local_endpoint().port();
}

class Files {
 public:
  Files() {
    const auto written = profile::write_profile(serve::testing::card_profile({{"a", 4}}),
                                                folder_.path() / "profiles");
    if (!written.ok()) throw std::runtime_error(written.to_string());
    folder_.write("a.pt", "stands for model a");
    folder_.write("models.json", R"({"models":[{"name":"a","file":"a.pt","slo_ms":2000,"rate":20,
      "max_batch":16,"inputs":[{"name":"x","type":"UINT8","shape":[1]}],
      "outputs":[{"name":"y","type":"UINT8","shape":[1]}]}]})");
    const std::string backends = "\"127.0.0.1:" + std::to_string(free_port()) + "\"";
    frontend_ = folder_.write(
        "frontend.json",
        R"({"listen":"127.0.0.1:)" + std::to_string(client_port_) + R"(","backend_listen":)" +
            backends +
            R"(,"http":"off","grpc":"off","metrics":"off","models":"models.json","profiles":"profiles"})");
    backend_ = folder_.write("backend.json", R"({"node":"n0","frontend":)" + backends +
                                                 R"(,"model_store":"store","profiles":"profiles",
      "warm_proxies":1,"devices":[{"type":"card","count":1,"partitioning":"simulated"}]})");
  }

  [[nodiscard]] const std::filesystem::path& frontend() const { return frontend_; }
  [[nodiscard]] const std::filesystem::path& backend() const { return backend_; }
  [[nodiscard]] std::uint16_t client_port() const { return client_port_; }

 private:
  support::TemporaryFolder folder_;
  std::filesystem::path frontend_;
  std::filesystem::path backend_;
  const std::uint16_t client_port_ = free_port();
};

// Whether a request on a new connection is answered.
bool served(std::uint16_t port) {
  try {
    StreamClient client(port);
    const auto reply = client.ask(byte_request("a", 1), seconds(3));
    return reply.has_value() && reply->status.ok();
  } catch (const std::exception&) {
    return false;  // the frontend does not listen yet
  }
}

bool comes_true(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + seconds(20);
  while (Clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // leaves the cores to the daemons
  }
  return false;
}

TEST(FrontendRestart, ARestartedFrontendFindsTheSameProxies) {
  const Files files;
  auto frontend = std::make_unique<Process>("gpulet-frontend", files.frontend());
  const Process backend("gpulet-backend", files.backend());
  ASSERT_TRUE(comes_true([&] { return served(files.client_port()); }));
  // The process that serves, and a warm one that replaced it in the pool.
  ASSERT_TRUE(comes_true([&] { return backend.children().size() == 2; }));
  const auto before = backend.children();

  frontend->end(SIGKILL);
  EXPECT_FALSE(served(files.client_port()));
  EXPECT_EQ(backend.children(), before);
  frontend = std::make_unique<Process>("gpulet-frontend", files.frontend());
  ASSERT_TRUE(comes_true([&] { return served(files.client_port()); }));
  EXPECT_EQ(backend.children(), before) << "no process was started or ended";
}

}  // namespace
}  // namespace gpulet::testing
