// A peer that connects to the wrong port, or without the required TLS, gets an error in its own
// protocol, with real daemons.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "gpulet/config/daemon_config.h"
#include "gpulet/load/call.h"
#include "gpulet/net/tls.h"
#include "tests/support/certificates/certificates.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/hostile/hostile_backend.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing {
namespace {

using std::chrono::seconds;
using support::names;

load::Target target(std::uint16_t port) {
  return load::Target(config::parse_endpoint("127.0.0.1:" + std::to_string(port)).value());
}
Result<std::string> page(std::uint16_t port) {
  return load::fetch_page(target(port), "/v2", seconds(10), [] { return true; });
}

class WrongEnds : public ::testing::Test {
 protected:
  Cluster cluster_{{{.name = "echo", .slo_ms = 5000}}};
};

TEST_F(WrongEnds, ABackendAtTheClientPortLearnsItsPort) {
  HostileBackend backend(cluster_.client_port());
  backend.say(plain_hello("n7", 1));
  const auto refused = backend.wait_until_refused();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code(), StatusCode::invalid);
  EXPECT_TRUE(names(refused->message(), std::to_string(cluster_.backend_port())));
}

TEST_F(WrongEnds, AClientAtTheBackendPortLearnsItsPort) {
  const Status models = load::fetch_models(target(cluster_.backend_port())).status();
  EXPECT_EQ(models.code(), StatusCode::invalid);
  EXPECT_TRUE(names(models, std::to_string(cluster_.client_port())));
  EXPECT_EQ(load::fetch_status(target(cluster_.backend_port())).status().code(),
            StatusCode::invalid);
}

TEST_F(WrongEnds, HttpAtAFramePortGets400) {
  for (const std::uint16_t port : {cluster_.client_port(), cluster_.backend_port()}) {
    const Status status = page(port).status();
    EXPECT_EQ(status.code(), StatusCode::invalid) << status.to_string();
    EXPECT_TRUE(names(status, "400"));
    EXPECT_TRUE(names(status, std::to_string(cluster_.http_port())));
  }
}

TEST_F(WrongEnds, FramesAtAnHttpOrGrpcPortGetAnError) {
  const Status http = load::fetch_status(target(cluster_.http_port())).status();
  EXPECT_EQ(http.code(), StatusCode::malformed) << http.to_string();
  EXPECT_TRUE(names(http, "HTTP"));
  const Status grpc = load::fetch_status(target(cluster_.grpc_port())).status();
  EXPECT_EQ(grpc.code(), StatusCode::malformed) << grpc.to_string();
  EXPECT_TRUE(names(grpc, "gRPC"));
}

TEST_F(WrongEnds, TlsAtAPlainPortIsReported) {
  support::TemporaryFolder folder;
  Authority authority{folder.path(), "authority"};
  const config::TlsFiles files = authority.issue("frontend", {"127.0.0.1"});
  load::Target secure = target(cluster_.client_port());
  secure.tls = net::TlsContext::client({{}, {}, files.authority}).value();
  const Status status = load::fetch_status(secure).status();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(names(status, "TLS"));
}

TEST(WrongEndsUnderTls, APlainPeerLearnsThatTlsIsRequired) {
  support::TemporaryFolder folder;
  Authority authority{folder.path(), "authority"};
  const config::TlsFiles files = authority.issue("frontend", {"127.0.0.1"});
  ClusterChanges changes;
  changes.frontend = [&](config::FrontendConfig& config) {
    config.tls = files;
    config.backend_tls = files;
  };
  Cluster cluster({{.name = "echo", .slo_ms = 5000}}, {}, changes);
  const Status client = load::fetch_status(target(cluster.client_port())).status();
  EXPECT_FALSE(client.ok());
  EXPECT_TRUE(names(client, "TLS"));
  HostileBackend backend(cluster.backend_port());
  backend.say(plain_hello("n7", 1));
  const auto refused = backend.wait_until_refused();
  ASSERT_TRUE(refused.has_value());
  EXPECT_TRUE(names(refused->message(), "TLS"));
}

TEST_F(WrongEnds, ASecondBackendOfTheSameNameIsRejected) {
  HostileBackend first(cluster_.backend_port());
  first.say(plain_hello("n7", 1));
  ASSERT_TRUE(first.wait_until_welcome());
  HostileBackend second(cluster_.backend_port());
  second.say(plain_hello("n7", 1));
  const auto refused = second.wait_until_refused();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code(), StatusCode::invalid);
  EXPECT_TRUE(names(refused->message(), "n7"));
}

}  // namespace
}  // namespace gpulet::testing
