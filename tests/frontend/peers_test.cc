// Who may act as a frontend of a cluster, with sockets on loopback.
#include "frontend/cluster/peers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/frames/certificate_role.h"
#include "gpulet/protocol/codec.h"
#include "tests/net/loop.h"
#include "tests/support/process/process.h"

namespace gpulet::frontend::peers_test {
namespace {

// One that connects to a frontend's port and says what it likes.
class Stranger final : private net::ConnectionHandler {
 public:
  Stranger(net::testing::Loop& loop, std::uint16_t port)
      : connector_(loop.executor(), "127.0.0.1", port, {}) {
    connector_.connect([this](Result<net::Stream> stream) {
      if (!stream.ok()) return;
      connection_ = net::Connection::start(std::move(stream).value(), {}, *this);
    });
    EXPECT_TRUE(loop.run_until([this] { return connection_ != nullptr; }));
  }
  ~Stranger() override { connector_.close(); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void say(const PeerRequest& message) { connection_->send(protocol::encode(message)); }
  void say(protocol::OutgoingFrame frame) { connection_->send(std::move(frame)); }
  [[nodiscard]] bool welcomed() const { return welcomed_; }
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] std::optional<StatusCode> refused() const { return refused_; }

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> /*message*/) override {
    auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
    const std::span<std::byte> view(*memory);
    return MutableBytes(std::move(memory), view);
  }
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    const auto reply = protocol::decode<PeerReply>(header, message, std::move(payload).freeze());
    if (!reply.ok()) return;
    if (std::holds_alternative<PeerWelcome>(reply.value())) welcomed_ = true;
    if (const auto* const one = std::get_if<Refused>(&reply.value())) refused_ = one->why.code();
  }
  void on_closed(const Status& /*reason*/) override { closed_ = true; }

  net::Connector connector_;
  std::shared_ptr<net::Connection> connection_;
  bool welcomed_ = false;
  bool closed_ = false;
  std::optional<StatusCode> refused_;
};

class PeersTest : public ::testing::Test,
                  private EventSink,
                  private PayloadCheck,
                  private PeerCatalogue,
                  private PeerQuestions {
 protected:
  PeersTest() {
    PeersOptions options;
    options.cluster = "test";
    options.member = "f0";
    options.listen = {"127.0.0.1", port_};
    PeerCatalogue& catalogue = *this;
    PeerQuestions& questions = *this;
    peers_ = std::make_unique<Peers>(loop_.context(), std::move(options), buffers_,
                                     EngineLink{*this, replies_, *this}, catalogue, questions);
    EXPECT_TRUE(peers_->listen().ok());
  }
  // The store's list: this frontend, and f1 with that secret.
  void set_members(const std::string& secret) {
    peers_->set_members({{"f0", "h0:7000", {}, "own"}, {"f1", "h1:7000", {}, secret}});
  }
  static PeerHello hello(const std::string& secret, const std::string& member = "f1") {
    return {"test", member, kProtocolLevel, secret};
  }
  [[nodiscard]] bool runs_until(const std::function<bool()>& condition) {
    return loop_.run_until(condition);
  }

  net::testing::Loop loop_;
  const std::uint16_t port_ = gpulet::testing::free_port();
  net::BufferPool buffers_{net::BufferPoolOptions()};
  ReplyRouter replies_;
  CatalogueState catalogue_;
  int reports_ = 0;
  int changes_ = 0;
  std::optional<serve::RequestReceived> received_;
  std::unique_ptr<Peers> peers_;

 private:
  void deliver(serve::FrontendEvent event) override {
    if (std::holds_alternative<serve::OwnerReported>(event)) ++reports_;
    if (auto* const request = std::get_if<serve::RequestReceived>(&event))
      received_ = std::move(*request);
  }
  void deliver_from(std::string_view /*address*/, serve::FrontendEvent event) override {
    deliver(std::move(event));
  }
  [[nodiscard]] Status accepts(const InferRequest& /*request*/,
                               std::size_t /*payload_bytes*/) const override {
    return {};
  }
  [[nodiscard]] std::optional<serve::PeerBreach> breach_of_result(
      BackendId /*from*/, BatchId /*batch*/) const override {
    return std::nullopt;
  }
  void on_change(ClientId /*client*/, const std::string& /*from*/,
                 ChangeModels /*asked*/) override {
    ++changes_;
  }
  bool on_piece_request(ClientId /*client*/, const ModelPieceRequest& /*request*/) override {
    return true;
  }
  void on_catalogue(const std::string& /*from*/, CatalogueState /*state*/) override {}
  void on_adopted(ClientId /*client*/, const CatalogueStamp& /*stamp*/) override {}
  void on_gone(ClientId /*client*/) override {}
  [[nodiscard]] const CatalogueState& catalogue() const override { return catalogue_; }
  void on_status_request(ClientId /*client*/) override {}
  void on_statistics_request(ClientId /*client*/, const StatisticsRequest& /*request*/) override {}
};

TEST_F(PeersTest, AMemberIsKnownByTheSecretOfItsRecord) {
  set_members("secret");
  Stranger member(loop_, port_);
  member.say(hello("secret"));
  ASSERT_TRUE(runs_until([&] { return member.welcomed(); }));
  EXPECT_EQ(peers_->listeners().size(), 1U);
  member.say(OwnerReport{});
  EXPECT_TRUE(runs_until([&] { return reports_ == 1; }));
}

TEST_F(PeersTest, TheEngineLearnsWhichMemberKeepsAPayload) {
  set_members("secret");
  Stranger member(loop_, port_);
  member.say(hello("secret"));
  Forward forward;
  forward.request.tag = 7;
  forward.request.model = "a";
  forward.kept_bytes = 600'000;
  member.say(forward);
  ASSERT_TRUE(runs_until([&] { return received_.has_value(); }));
  EXPECT_EQ(received_->member, "f1");
  EXPECT_EQ(received_->kept_bytes, 600'000U);
  EXPECT_TRUE(received_->forwarded);
  EXPECT_TRUE(received_->request.payload.empty());
}

TEST_F(PeersTest, WhoeverClaimsAMembersNameIsNone) {
  set_members("secret");
  for (const PeerHello& claim : {hello(""), hello("Secret"), hello("secret", "f2"),
                                 hello("secret", "f0"), hello("secrets"), hello("own")}) {
    Stranger stranger(loop_, port_);
    stranger.say(claim);
    stranger.say(OwnerReport{});
    stranger.say(ChangeModels{1, {ModelsChange::Kind::unload, "a", {}, {}}});
    ASSERT_TRUE(runs_until([&] { return stranger.closed(); }));
    EXPECT_FALSE(stranger.welcomed());
    EXPECT_TRUE(stranger.refused().has_value());
  }
  EXPECT_EQ(reports_, 0);
  EXPECT_EQ(changes_, 0);
  EXPECT_TRUE(peers_->listeners().empty());
}

TEST_F(PeersTest, AMemberWaitsForItsRecord) {
  set_members("of an earlier process");
  Stranger member(loop_, port_);
  member.say(hello("secret"));
  member.say(Heartbeat{});  // does not disturb
  Stranger other(loop_, port_);
  other.say(PeerHello{"another cluster", "f1", kProtocolLevel, "secret"});
  ASSERT_TRUE(runs_until([&] { return other.closed(); }));
  EXPECT_FALSE(member.welcomed());
  set_members("secret");
  EXPECT_TRUE(runs_until([&] { return member.welcomed(); }));
}

TEST_F(PeersTest, AMemberWaitsForTheRecordOfThisFrontend) {
  peers_->set_members({{"f1", "h1:7000", {}, "secret"}});
  Stranger member(loop_, port_);
  member.say(hello("secret"));
  Stranger other(loop_, port_);
  other.say(PeerHello{"another cluster", "f1", kProtocolLevel, "secret"});
  ASSERT_TRUE(runs_until([&] { return other.closed(); }));
  EXPECT_FALSE(member.welcomed());
  set_members("secret");
  EXPECT_TRUE(runs_until([&] { return member.welcomed(); }));
}

TEST_F(PeersTest, AMemberOfAnEarlierVersionHasNoSecret) {
  set_members("");
  Stranger member(loop_, port_);
  member.say(hello(""));
  EXPECT_TRUE(runs_until([&] { return member.welcomed(); }));
}

TEST_F(PeersTest, AStrangerSendsNoLongMessage) {
  set_members("secret");
  Stranger stranger(loop_, port_);
  protocol::OutgoingFrame frame;
  const auto header =
      protocol::encode_frame_header({protocol::MessageType::owner_report, 1U << 20U, 0});
  frame.head.assign(reinterpret_cast<const char*>(header.data()), header.size());
  stranger.say(std::move(frame));
  ASSERT_TRUE(runs_until([&] { return stranger.closed(); }));
  // A member may.
  Stranger member(loop_, port_);
  member.say(hello("secret"));
  ASSERT_TRUE(runs_until([&] { return member.welcomed(); }));
  OwnerReport report;
  report.nodes.assign(1000, "node");
  member.say(report);
  EXPECT_TRUE(runs_until([&] { return reports_ == 1; }));
}

TEST_F(PeersTest, ThereAreFewStrangersAtATime) {
  set_members("secret");
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (std::size_t i = 0; i < Peers::kMostStrangers + 8; ++i)
    strangers.push_back(std::make_unique<Stranger>(loop_, port_));
  const auto closed = [&] {
    return std::count_if(strangers.begin(), strangers.end(),
                         [](const auto& one) { return one->closed(); });
  };
  EXPECT_TRUE(runs_until([&] { return closed() >= 1; }));
  Stranger member(loop_, port_);
  member.say(hello("secret"));
  EXPECT_TRUE(runs_until([&] { return member.welcomed(); }));
}

TEST(CertificateRole, ANodesCertificateIsNoFrontends) {
  const std::vector<std::string> node{"gpulet://node/f1", "f1"};
  const std::vector<std::string> frontend{"gpulet://frontend/f1", "f1", "f1.lab"};
  EXPECT_FALSE(permits_role(node, kFrontendRole, "f1"));
  EXPECT_TRUE(permits_role(node, kNodeRole, "f1"));
  EXPECT_TRUE(permits_role(frontend, kFrontendRole, "f1"));
  EXPECT_FALSE(permits_role(frontend, kFrontendRole, "f1.lab")) << "another member";
  EXPECT_FALSE(permits_role(frontend, kNodeRole, "f1"));
  EXPECT_TRUE(permits_role({"f1"}, kFrontendRole, "f1")) << "it has no role";
}

}  // namespace
}  // namespace gpulet::frontend::peers_test
