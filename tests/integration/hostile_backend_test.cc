// Backends with valid certificates that violate the protocol, beside honest ones, with real daemons
// and mutual TLS.
#include "tests/support/hostile/hostile_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "tests/support/certificates/certificates.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing {
namespace {

using serve::PeerViolation;
using std::chrono::seconds;

// The frontends of test clusters have run number 7.
constexpr std::uint64_t kFirstId = (std::uint64_t{7} << 40U) + 1;
// A device type without a profile: such a node gets no gpulets.
constexpr const char* kNoProfile = "unmeasured";
constexpr std::byte kForged{66};

class HostileBackendTest : public ::testing::Test {
 protected:
  ClusterChanges mutual() {
    ClusterChanges changes;
    changes.frontend = [this](config::FrontendConfig& config) { config.backend_tls = frontend_; };
    changes.backend = [this](config::BackendConfig& config) {
      config.tls = authority_.issue(config.node, {config.node});
    };
    return changes;
  }
  // Connects with the certificate of that node.
  HostileBackend hostile(Cluster& cluster, const std::string& node = "n1") {
    return HostileBackend(cluster.backend_port(), authority_.issue("hostile-" + node, {node}));
  }
  static std::uint64_t violations(Cluster& cluster, PeerViolation kind) {
    return cluster.status().violations[static_cast<std::size_t>(kind)];
  }
  static bool wait_for(Cluster& cluster, StreamClient& client,
                       const std::function<bool(const serve::FrontendStatus&)>& condition) {
    return client.run_until([&] { return condition(cluster.status()); }, seconds(20));
  }
  static BatchResult forged(std::uint64_t id) {
    BatchResult result;
    result.id = {id};
    result.outputs = Bytes::own({kForged});
    return result;
  }
  static std::string file_of(Cluster& cluster) {
    return cluster.setup().model_files.begin()->first;
  }

  support::TemporaryFolder folder_;
  Authority authority_{folder_.path(), "authority"};
  config::TlsFiles frontend_ = authority_.issue("frontend", {"127.0.0.1"});
};

bool one_is_in_flight(const serve::FrontendStatus& status) {
  return std::any_of(status.gpulets.begin(), status.gpulets.end(),
                     [](const auto& gpulet) { return gpulet.in_flight > 0; });
}

// The client's reply while another node answers its batch.
class ForgedResultTest : public HostileBackendTest {
 protected:
  void expect_the_nodes_own_answer(bool after_hello, PeerViolation kind) {
    Cluster cluster({{"a", 1500, 20000, 0.2}}, {}, mutual());
    cluster.add_backend("n0");
    cluster.wait_until_serving();
    StreamClient client(cluster.client_port());
    client.send(byte_request("a", 1));
    ASSERT_TRUE(wait_for(cluster, client, one_is_in_flight));
    HostileBackend other = hostile(cluster);
    if (after_hello) {
      other.say(plain_hello("n1", 1, kNoProfile));
      ASSERT_TRUE(other.wait_until_welcome());
    }
    for (std::uint64_t i = 0; i < 10; ++i) other.say(forged(kFirstId + i));
    EXPECT_TRUE(other.wait_until_refused());
    EXPECT_TRUE(one_is_in_flight(cluster.status()));
    ASSERT_TRUE(client.run_until([&] { return client.replies().contains(1); }, seconds(20)));
    const InferReply& reply = client.replies().at(1).front();
    ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
    EXPECT_EQ(reply.payload.at(0).view()[0], std::byte{1});
    EXPECT_EQ(violations(cluster, kind), 1U);
  }
};

TEST_F(ForgedResultTest, ANodeCannotAnswerTheBatchOfAnother) {
  expect_the_nodes_own_answer(true, PeerViolation::foreign_batch);
}

TEST_F(ForgedResultTest, AResultBeforeHelloIsRejected) {
  expect_the_nodes_own_answer(false, PeerViolation::before_hello);
}

TEST_F(HostileBackendTest, TheFirstMessageMustBeHello) {
  Cluster cluster({{"a"}}, {}, mutual());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const std::string file = file_of(cluster);
  const std::vector<BackendMessage> all{
      ModelPieceRequest{file, 0},
      Heartbeat{},
      Draining{},
      plain_report(GpuletId{kFirstId}, GpuletState::failed),
      DeviceReport{0, {StatusCode::unavailable, "gone"}},
      forged(kFirstId),
  };
  for (const BackendMessage& message : all) {
    HostileBackend other = hostile(cluster);
    other.say(message);
    EXPECT_TRUE(other.wait_until_refused()) << message.index();
    EXPECT_TRUE(other.heard<ModelPiece>().empty());
  }
  EXPECT_EQ(violations(cluster, PeerViolation::before_hello), all.size());
  const serve::FrontendStatus status = cluster.status();
  EXPECT_EQ(status.backends.size(), 1U);
  EXPECT_TRUE(status.backends.begin()->second.devices.at(0).fault.ok());
}

TEST_F(HostileBackendTest, AnUnexpectedPayloadIsRejectedByItsHeader) {
  Cluster cluster({{"a"}}, {}, mutual());
  constexpr std::uint32_t kMuch = 200U << 20U;
  HostileBackend early = hostile(cluster);
  early.announce_payload(protocol::MessageType::batch_result, "", kMuch);
  EXPECT_TRUE(early.wait_until_refused());
  HostileBackend other = hostile(cluster);
  other.say(plain_hello("n1", 1, kNoProfile));
  ASSERT_TRUE(other.wait_until_welcome());
  other.announce_payload(protocol::MessageType::heartbeat, "", kMuch);
  EXPECT_TRUE(other.wait_until_refused());
  HostileBackend result = hostile(cluster);
  result.say(plain_hello("n1", 1, kNoProfile));
  ASSERT_TRUE(result.wait_until_welcome());
  result.announce_payload(protocol::MessageType::batch_result, "", kMuch);  // of batch 0
  EXPECT_TRUE(result.wait_until_refused());
  EXPECT_EQ(violations(cluster, PeerViolation::before_hello), 1U);
  EXPECT_EQ(violations(cluster, PeerViolation::malformed), 1U);
  EXPECT_EQ(violations(cluster, PeerViolation::foreign_batch), 1U);
}

TEST_F(HostileBackendTest, AModelFileIsSentOnlyToNodesThatServeIt) {
  Cluster cluster({{"a"}}, {}, mutual());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  HostileBackend other = hostile(cluster);
  other.say(plain_hello("n1", 1, kNoProfile));
  ASSERT_TRUE(other.wait_until_welcome());
  // For a file that is not served, the answer is that it is missing.
  other.say(ModelPieceRequest{std::string(64, '0'), 0});
  ASSERT_TRUE(other.run_until([&] { return !other.heard<ModelPiece>().empty(); }));
  EXPECT_EQ(other.heard<ModelPiece>().front().total_bytes, 0U);
  other.say(ModelPieceRequest{file_of(cluster), 0});
  EXPECT_TRUE(other.wait_until_refused());
  EXPECT_EQ(other.heard<ModelPiece>().size(), 1U);
  EXPECT_EQ(violations(cluster, PeerViolation::foreign_model), 1U);
}

// The node claims a gpulet in order to get its file.
TEST_F(HostileBackendTest, AClaimedGpuletGivesNoAccessToItsFile) {
  Cluster cluster({{"a"}}, {}, mutual());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const std::string version = cluster.status().models.at(0).version;
  HostileBackend other = hostile(cluster);
  Hello hello = plain_hello("n1", 1, kNoProfile);
  hello.gpulets = {plain_report(GpuletId{5}, GpuletState::preparing, {{"a", 1, version}})};
  other.say(hello);
  other.say(ModelPieceRequest{file_of(cluster), 0});
  ASSERT_TRUE(other.run_until([&] { return !other.heard<ModelPiece>().empty(); }));
  EXPECT_EQ(other.heard<ModelPiece>().front().total_bytes, 0U);
  ASSERT_EQ(other.heard<RetireGpulet>().size(), 1U);
  EXPECT_EQ(other.heard<RetireGpulet>().front().id, GpuletId{5});
}

// The node that sends a second Hello has requests in flight.
TEST_F(HostileBackendTest, ASecondHelloLosesNoRequest) {
  for (const char* const node : {"n1", "n9"}) {
    Cluster cluster({{"a", 4, 20000, 20}}, {}, mutual());
    HostileBackend other(cluster.backend_port(), authority_.issue("both", {"n1", "n9"}));
    other.say(plain_hello("n1", 1));
    ASSERT_TRUE(other.run_until([&] { return !other.heard<CreateGpulet>().empty(); }));
    for (const CreateGpulet& asked : other.heard<CreateGpulet>()) {
      GpuletReport ready;
      ready.id = asked.id;
      ready.size = asked.size;
      ready.state = GpuletState::ready;
      other.say(ready);
    }
    StreamClient client(cluster.client_port());
    ASSERT_TRUE(wait_for(cluster, client, [&](const serve::FrontendStatus& status) {
      other.say(Heartbeat{});
      other.run_until([] { return false; }, std::chrono::milliseconds(20));
      return status.state == "serving";
    }));
    for (std::uint64_t tag = 1; tag <= 4; ++tag) client.send(byte_request("a", tag));
    ASSERT_TRUE(wait_for(cluster, client, one_is_in_flight));
    other.say(plain_hello(node, 1));
    EXPECT_TRUE(other.wait_until_refused());
    cluster.add_backend("n0");
    EXPECT_TRUE(client.run_until([&] { return client.replies().size() == 4; }, seconds(20)));
    for (const auto& [tag, replies] : client.replies())
      EXPECT_TRUE(replies.front().status.ok()) << replies.front().status.to_string();
    EXPECT_EQ(violations(cluster, PeerViolation::second_hello), 1U);
  }
}

TEST_F(HostileBackendTest, AnInvalidHelloIsRejectedAndAffectsNoOther) {
  Cluster cluster({{"a", 4, 2000, 20}}, {}, mutual());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const GpuletId others = cluster.status().gpulets.at(0).id;
  const BackendId owner = cluster.status().gpulets.at(0).gpulet.backend;

  Hello claims = plain_hello("n1", 1);
  claims.gpulets = {plain_report(others, GpuletState::ready)};
  Hello twice = plain_hello("n1", 2);
  twice.devices[1].device.key.device = 0;
  Hello nowhere = plain_hello("n1", 1);
  nowhere.gpulets = {plain_report(GpuletId{5}, GpuletState::ready)};
  nowhere.gpulets[0].device = 3;
  for (const auto& [hello, kind] : {std::pair{claims, PeerViolation::foreign_gpulet},
                                    std::pair{twice, PeerViolation::invalid_hello},
                                    std::pair{nowhere, PeerViolation::invalid_hello}}) {
    const std::uint64_t before = violations(cluster, kind);
    HostileBackend other = hostile(cluster);
    other.say(hello);
    const auto told = other.wait_until_refused();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->code(), StatusCode::invalid);
    EXPECT_EQ(violations(cluster, kind), before + 1);
  }
  const serve::FrontendStatus status = cluster.status();
  EXPECT_EQ(status.backends.size(), 1U);
  EXPECT_EQ(status.gpulets.at(0).id, others);
  EXPECT_EQ(status.gpulets.at(0).gpulet.backend, owner);
  StreamClient client(cluster.client_port());
  const auto reply = client.ask(byte_request("a", 1), seconds(20));
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->status.ok()) << reply->status.to_string();
  // Planning still works: another node is added.
  cluster.add_backend("n2");
  EXPECT_TRUE(wait_for(cluster, client, [](const serve::FrontendStatus& now) {
    return now.backends.size() == 2 && now.schedulable && !now.reorganising;
  }));
}

TEST_F(HostileBackendTest, AConnectedNodeStays) {
  Cluster cluster({{"a", 4, 2000, 20}}, {}, mutual());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  HostileBackend other = hostile(cluster, "n0");
  other.say(plain_hello("n0", 1));
  EXPECT_TRUE(other.wait_until_refused());
  EXPECT_EQ(violations(cluster, PeerViolation::node_taken), 1U);
  StreamClient client(cluster.client_port());
  const auto reply = client.ask(byte_request("a", 1), seconds(20));
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->status.ok());
}

TEST_F(HostileBackendTest, ANodeReportsOnlyForItself) {
  Cluster cluster({{"a", 4, 2000, 20}}, {}, mutual());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const GpuletId others = cluster.status().gpulets.at(0).id;
  const auto after_hello = [&](const BackendMessage& message) {
    HostileBackend other = hostile(cluster);
    other.say(plain_hello("n1", 1, kNoProfile));
    EXPECT_TRUE(other.wait_until_welcome());
    other.say(message);
    return other.wait_until_refused().has_value();
  };
  EXPECT_TRUE(after_hello(plain_report(others, GpuletState::gone)));
  EXPECT_TRUE(after_hello(DeviceReport{7, {StatusCode::unavailable, "gone"}}));
  EXPECT_EQ(violations(cluster, PeerViolation::foreign_gpulet), 1U);
  EXPECT_EQ(violations(cluster, PeerViolation::foreign_device), 1U);
  EXPECT_EQ(cluster.status().gpulets.at(0).id, others);

  // Late messages are no violation: an unknown gpulet, or a batch that was answered.
  StreamClient client(cluster.client_port());
  ASSERT_TRUE(client.ask(byte_request("a", 1), seconds(20)));
  HostileBackend late = hostile(cluster);
  late.say(plain_hello("n1", 1, kNoProfile));
  late.say(plain_report(GpuletId{5}, GpuletState::gone));
  late.say(forged(kFirstId));
  late.say(ModelPieceRequest{std::string(64, '0'),
                             0});  // its answer shows that earlier messages were processed
  EXPECT_TRUE(late.run_until([&] { return !late.heard<ModelPiece>().empty(); }));
  EXPECT_FALSE(late.closed());
}

}  // namespace
}  // namespace gpulet::testing
