// Frontend and backend of one machine, with real daemons: they move from TCP to a Unix socket, and
// requests lie in memory that both share and that no proxy sees.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/net/listener.h"
#include "tests/support/certificates/certificates.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/hostile/hostile_backend.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing::local_socket_test {
namespace {

using std::chrono::seconds;

constexpr std::size_t kImage = 150'000;
// A device type without a profile: such a node gets no gpulets.
constexpr const char* kNoProfile = "unmeasured";

std::vector<ClusterModel> two_models() {
  return {{.name = "a", .slo_ms = 5000, .bytes = kImage},
          {.name = "b", .slo_ms = 5000, .bytes = 2 * kImage}};
}

// The mappings of shared requests in a process; empty: they cannot be read.
std::optional<int> mappings_of(const std::string& process) {
  std::ifstream maps("/proc/" + process + "/maps");
  std::string line;
  int lines = 0;
  int found = 0;
  while (std::getline(maps, line)) {
    ++lines;
    if (line.find("gpulet-requests") != std::string::npos) ++found;
  }
  return lines == 0 ? std::nullopt : std::optional(found);
}

// Whether every request gets its own bytes back.
void expect_own_answers(std::uint16_t port, std::uint64_t requests) {
  StreamClient client(port);
  for (std::uint64_t tag = 1; tag <= requests; ++tag) {
    const bool second = tag % 2 == 0;
    client.send(byte_request(second ? "b" : "a", tag, second ? 2 * kImage : kImage));
  }
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == requests; }, seconds(30)));
  for (const auto& [tag, replies] : client.replies()) {
    ASSERT_EQ(replies.size(), 1U) << tag;
    ASSERT_TRUE(replies.front().status.ok()) << replies.front().status.to_string();
    const auto view = replies.front().payload.at(0).view();
    EXPECT_TRUE(std::ranges::all_of(view, [own = static_cast<std::byte>(tag)](std::byte one) {
      return one == own;
    })) << tag;
  }
}

class LocalSocketTest : public ::testing::Test {
 protected:
  // This process is frontend and backend: it has two mappings where they share memory.
  [[nodiscard]] static bool shares() { return mappings_of("self").value_or(0) == 2; }
};

TEST_F(LocalSocketTest, ABackendOfThisMachineReadsRequestsFromSharedMemory) {
  Cluster cluster(two_models());
  cluster.add_backend("n0", 2);
  cluster.wait_until_serving();
  EXPECT_TRUE(shares());
  for (int i = 0; i < 3; ++i) expect_own_answers(cluster.client_port(), 40);
}

TEST_F(LocalSocketTest, NoProxySeesTheMemoryOfRequests) {
  Cluster cluster(two_models());
  cluster.add_backend("n0", 2);
  cluster.wait_until_serving();
  expect_own_answers(cluster.client_port(), 20);
  ASSERT_TRUE(shares());
  const std::vector<pid_t> proxies = cluster.proxies("n0");
  ASSERT_FALSE(proxies.empty());
  for (const pid_t proxy : proxies) {
    const auto mappings = mappings_of(std::to_string(proxy));
    if (!mappings) GTEST_SKIP() << "only root may read the mappings of proxies";
    EXPECT_EQ(*mappings, 0);
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(proxy) + "/fd", error)) {
      const std::string file = std::filesystem::read_symlink(entry.path(), error).string();
      EXPECT_EQ(file.find("gpulet-requests"), std::string::npos) << file;
    }
  }
}

TEST_F(LocalSocketTest, EitherSideMayStayWithTcp) {
  for (const bool at_frontend : {true, false}) {
    ClusterChanges changes;
    if (at_frontend) {
      changes.frontend = [](config::FrontendConfig& config) { config.local_socket = false; };
    } else {
      changes.backend = [](config::BackendConfig& config) { config.local_socket = false; };
    }
    Cluster cluster(two_models(), {}, changes);
    cluster.add_backend("n0", 2);
    cluster.wait_until_serving();
    expect_own_answers(cluster.client_port(), 20);
    EXPECT_EQ(mappings_of("self"), 0) << at_frontend;
  }
}

TEST_F(LocalSocketTest, ANodeProvesItsNameOverTlsBeforeItMoves) {
  support::TemporaryFolder folder;
  Authority authority(folder.path(), "authority");
  const config::TlsFiles frontend = authority.issue("frontend", {"127.0.0.1"});
  ClusterChanges changes;
  changes.frontend = [&](config::FrontendConfig& config) { config.backend_tls = frontend; };
  changes.backend = [&](config::BackendConfig& config) {
    config.tls = authority.issue(config.node, {config.node});
  };
  Cluster cluster(two_models(), {}, changes);
  cluster.add_backend("n0", 2);
  cluster.wait_until_serving();
  EXPECT_TRUE(shares());
  expect_own_answers(cluster.client_port(), 20);
}

TEST_F(LocalSocketTest, ABackendThatDiesLosesNoRequestThatAnotherCanServe) {
  Cluster cluster(two_models());
  const pid_t victim = cluster.spawn_backend("n0", 2);
  cluster.add_backend("n1", 2);
  cluster.wait_until_serving();
  StreamClient client(cluster.client_port());
  constexpr std::uint64_t kRequests = 60;
  for (std::uint64_t tag = 1; tag <= kRequests; ++tag) {
    client.send(byte_request("a", tag, kImage));
    if (tag == kRequests / 3) ASSERT_EQ(::kill(victim, SIGKILL), 0);
  }
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == kRequests; }, seconds(30)));
  for (const auto& [tag, replies] : client.replies()) {
    ASSERT_EQ(replies.size(), 1U);
    if (!replies.front().status.ok()) continue;  // it was late, or its second batch failed, too
    EXPECT_EQ(replies.front().payload.at(0).view().front(), static_cast<std::byte>(tag));
  }
  expect_own_answers(cluster.client_port(), 20);
}

// A backend of which the frontend knows nothing but its Hello.
class StrangerTest : public ::testing::Test {
 protected:
  StrangerTest() {
    cluster_.add_backend("n0", 2);
    cluster_.wait_until_serving();
    stranger_.say(plain_hello("n1", 1, kNoProfile));
    EXPECT_TRUE(stranger_.wait_until_welcome());
    offer_ = stranger_.heard<Welcome>().front().local.value_or(LocalOffer{});
  }
  void TearDown() override { expect_own_answers(cluster_.client_port(), 10); }

  // Whether the frontend closes a socket that showed this secret.
  bool is_refused(const std::string& secret) {
    net::asio::io_context io;
    auto opened = net::open_local(io.get_executor(), offer_.name, offer_.user, secret);
    if (!opened.ok()) return false;
    net::StreamSocket socket = std::move(opened).value();
    socket.non_blocking(true);
    return stranger_.run_until([&] {
      char byte = 0;
      boost::system::error_code error;
      socket.receive(net::asio::buffer(&byte, 1), 0, error);
      return error && error != net::asio::error::would_block;
    });
  }

  Cluster cluster_{two_models()};
  HostileBackend stranger_{cluster_.backend_port()};
  LocalOffer offer_;
};

TEST_F(StrangerTest, NeedsTheSecretOfItsOffer) {
  EXPECT_EQ(offer_.user, ::geteuid());
  EXPECT_TRUE(is_refused(net::draw_local_secret()));
  EXPECT_FALSE(stranger_.closed());
}

TEST_F(StrangerTest, CannotMoveWithoutASocket) {
  stranger_.say_frame(protocol::bare_frame(protocol::MessageType::moved));
  const auto refused = stranger_.wait_until_refused();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code(), StatusCode::invalid);
  EXPECT_EQ(cluster_.status().violations[static_cast<std::size_t>(serve::PeerViolation::malformed)],
            1U);
}

TEST_F(StrangerTest, ASecretEndsWithItsConnection) {
  stranger_.say_frame(protocol::bare_frame(protocol::MessageType::moved));
  ASSERT_TRUE(stranger_.run_until([&] { return stranger_.closed(); }));
  ASSERT_TRUE(stranger_.run_until([&] { return is_refused(offer_.secret); }));
}

TEST_F(StrangerTest, WhoOnlyShowsItsSecretHoldsUpNobody) {
  net::asio::io_context io;
  const auto shown = net::open_local(io.get_executor(), offer_.name, offer_.user, offer_.secret);
  ASSERT_TRUE(shown.ok());
  expect_own_answers(cluster_.client_port(), 20);
}

}  // namespace
}  // namespace gpulet::testing::local_socket_test
