// A frontend that is killed and restarted: the backend keeps its proxies, and serving continues.
// All daemons are separate processes.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>

#include "gpulet/profile/store.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/process/process.h"
#include "tests/support/serve/world.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing {
namespace {

using std::chrono::seconds;

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

TEST(FrontendRestart, ARestartedFrontendFindsTheSameProxies) {
  const Files files;
  auto frontend = start_daemon("gpulet-frontend", files.frontend());
  const auto backend = start_daemon("gpulet-backend", files.backend());
  ASSERT_TRUE(comes_true([&] { return served(files.client_port()); }));
  // The process that serves, and a warm one that replaced it in the pool.
  ASSERT_TRUE(comes_true([&] { return backend->children().size() == 2; }));
  const auto before = backend->children();

  frontend->end(SIGKILL);
  EXPECT_FALSE(served(files.client_port()));
  EXPECT_EQ(backend->children(), before);
  frontend = start_daemon("gpulet-frontend", files.frontend());
  ASSERT_TRUE(comes_true([&] { return served(files.client_port()); }));
  EXPECT_EQ(backend->children(), before) << "no process was started or ended";
}

}  // namespace
}  // namespace gpulet::testing
