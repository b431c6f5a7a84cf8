// gRPC connections are limited like those of other ports, and the endpoint recovers after the
// process ran out of descriptors.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/read.hpp>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kserve.grpc.pb.h"
#include "tests/support/cluster/cluster.h"

namespace gpulet::testing {
namespace {

using net::asio::ip::tcp;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::unique_ptr<Cluster> frontend(const std::function<void(config::FrontendConfig&)>& change =
                                      [](auto&) {}) {
  ClusterChanges changes;
  changes.frontend = change;
  const std::vector<ClusterModel> models{{"a", 2, 500, 50, 16}};
  return std::make_unique<Cluster>(models, frontend::CoreObserver(), changes);
}

::grpc::Status ask_whether_live(std::uint16_t port) {
  ::grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a separate connection
  const auto stub = inference::GRPCInferenceService::NewStub(::grpc::CreateCustomChannel(
      "127.0.0.1:" + std::to_string(port), ::grpc::InsecureChannelCredentials(), arguments));
  ::grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + seconds(20));
  inference::ServerLiveResponse response;
  return stub->ServerLive(&context, {}, &response);
}

class DescriptorLimit {
 public:
  // Allows this many more than are open.
  explicit DescriptorLimit(int more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = dup(0);
    close(lowest_free);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(lowest_free + more);
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

bool descriptor_left() {
  const int one = dup(0);
  if (one >= 0) close(one);
  return one >= 0;
}

TEST(GrpcConnectionsTest, AreAcceptedAgainAfterDescriptorsRanOut) {
  // UBSan needs descriptors to check the type of an object.
  if (std::string_view(GPULET_SANITIZERS).find("undefined") != std::string_view::npos)
    GTEST_SKIP() << "not under UBSan";
  const auto cluster = frontend();
  ASSERT_TRUE(ask_whether_live(cluster->grpc_port()).ok());
  {
    net::asio::io_context io;
    std::vector<tcp::socket> sockets;
    const DescriptorLimit few(60);
    for (int i = 0; i < 45; ++i) sockets.emplace_back(io, tcp::v4());
    for (tcp::socket& socket : sockets)
      socket.connect({net::asio::ip::make_address("127.0.0.1"), cluster->grpc_port()});
    const auto deadline = std::chrono::steady_clock::now() + seconds(20);
    while (descriptor_left() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    ASSERT_FALSE(descriptor_left());
  }
  const ::grpc::Status answer = ask_whether_live(cluster->grpc_port());
  EXPECT_TRUE(answer.ok()) << answer.error_message();
}

TEST(GrpcConnectionsTest, ThatAreSilentAreClosedForOthers) {
  constexpr std::uint32_t kPlaces = 8;
  const auto cluster =
      frontend([](config::FrontendConfig& config) { config.max_connections = kPlaces; });
  net::asio::io_context io;
  std::vector<tcp::socket> silent;
  for (std::uint32_t i = 0; i < 4 * kPlaces; ++i) {
    silent.emplace_back(io, tcp::v4());
    silent.back().connect({net::asio::ip::make_address("127.0.0.1"), cluster->grpc_port()});
  }
  EXPECT_TRUE(ask_whether_live(cluster->grpc_port()).ok());
}

// Closed by the peer.
bool ended(tcp::socket& socket) {
  char byte = 0;
  const ssize_t got = ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

// Connects with a high descriptor: the low ones stay free for the connections that the frontend,
// which is in this process, accepts.
tcp::socket silent_connection(net::asio::io_context& io, std::uint16_t port) {
  constexpr int kLowestDescriptor = 500;
  const int low = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int high = ::fcntl(low, F_DUPFD_CLOEXEC, kLowestDescriptor);
  ::close(low);
  tcp::socket connection(io, tcp::v4(), high);
  connection.connect({net::asio::ip::make_address("127.0.0.1"), port});
  return connection;
}

// The limits of the ports follow the process's limit when the frontend starts.
TEST(GrpcConnectionsTest, LeaveOtherPortsTheirDescriptors) {
  constexpr int kDescriptors = 400;
  constexpr std::size_t kMost = kDescriptors / 4;
  std::unique_ptr<Cluster> cluster;
  {
    const DescriptorLimit few(kDescriptors - 100);
    cluster = frontend();
  }
  net::asio::io_context io;
  std::vector<tcp::socket> silent;
  for (int i = 0; i < kDescriptors; ++i)
    silent.push_back(silent_connection(io, cluster->grpc_port()));
  const auto held = [&] {
    return static_cast<std::size_t>(
        std::count_if(silent.begin(), silent.end(), [](tcp::socket& one) { return !ended(one); }));
  };
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  while (held() > kMost && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_LE(held(), kMost);
  EXPECT_TRUE(ask_whether_live(cluster->grpc_port()).ok());
}

TEST(GrpcConnectionsTest, ThatAreSilentTimeOut) {
  const auto cluster =
      frontend([](config::FrontendConfig& config) { config.first_message = milliseconds(300); });
  net::asio::io_context io;
  tcp::socket silent(io, tcp::v4());
  silent.connect({net::asio::ip::make_address("127.0.0.1"), cluster->grpc_port()});
  std::string greeting;
  boost::system::error_code end;
  net::asio::read(silent, net::asio::dynamic_buffer(greeting), end);
  EXPECT_TRUE(end);
}

}  // namespace
}  // namespace gpulet::testing
