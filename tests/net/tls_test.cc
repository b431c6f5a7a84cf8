#include "gpulet/net/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <boost/asio/write.hpp>
#include <numeric>
#include <optional>

#include "gpulet/net/connection.h"
#include "gpulet/net/listener.h"
#include "tests/net/loop.h"
#include "tests/support/certificates/certificates.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::net {
namespace {

using namespace testing;
using namespace std::chrono_literals;
using ::gpulet::support::TemporaryFolder;
using ::gpulet::testing::Authority;
using ::gpulet::testing::write_secret;
using support::names;

protocol::OutgoingFrame frame_of(const std::string& text, const Bytes& payload = {}) {
  const auto header = protocol::encode_frame_header({protocol::MessageType::infer_request,
                                                     static_cast<std::uint32_t>(text.size()),
                                                     static_cast<std::uint32_t>(payload.size())});
  return {std::string(reinterpret_cast<const char*>(header.data()), header.size()) + text,
          {payload}};
}

Bytes pattern(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31 % 251);
  return Bytes::own(std::move(bytes));
}

class Recorder : public ConnectionHandler {
 public:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte>) override {
    auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
    const std::span<std::byte> view(*memory);
    return MutableBytes(std::move(memory), view);
  }
  void on_frame(const protocol::FrameHeader&, std::span<const std::byte> message,
                MutableBytes payload) override {
    messages.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
    payloads.push_back(payload.freeze());
  }
  std::optional<protocol::OutgoingFrame> goodbye(const Status& failure,
                                                 protocol::Dialect) override {
    if (!says_goodbye) return std::nullopt;
    return frame_of(failure.message());
  }
  void on_closed(const Status& reason) override { closed = reason; }

  bool says_goodbye = false;
  std::vector<std::string> messages;
  std::vector<Bytes> payloads;
  std::optional<Status> closed;
};

// A server that accepts one connection, and a client, in one thread.
class TlsTest : public ::testing::Test {
 protected:
  using ContextResult = Result<TlsContextPointer>;

  void listen(const TlsContextPointer& tls, const ConnectionOptions& options = {}) {
    ListenerOptions listening;
    listening.tls = tls;
    auto listener = Listener::listen(loop_.executor(), "127.0.0.1", 0, listening,
                                     [this, options](Stream stream, ConnectionSlotPointer slot) {
                                       slot_ = std::move(slot);
                                       server_ =
                                           Connection::start(std::move(stream), options, served_);
                                     });
    listener_ = std::move(listener).value();
  }
  void connect(const TlsContextPointer& tls, const std::string& host = "127.0.0.1") {
    ConnectorOptions options;
    options.tls = tls;
    connector_.emplace(loop_.executor(), host, listener_->port(), options);
    connector_->connect([this](Result<Stream> stream) {
      client_ = Connection::start(std::move(stream).value(), {}, asked_);
    });
    ASSERT_TRUE(loop_.run_until([this] { return client_ && server_; }));
  }
  [[nodiscard]] bool both_closed() {
    return loop_.run_until([this] { return served_.closed && asked_.closed; });
  }

  TemporaryFolder folder_;
  Authority authority_{folder_.path(), "authority"};
  config::TlsFiles frontend_ = authority_.issue("frontend", {"127.0.0.1", "localhost"});
  config::TlsFiles node_ = authority_.issue("n0", {"n0"});
  Loop loop_;
  std::unique_ptr<Listener> listener_;
  std::optional<Connector> connector_;
  ConnectionSlotPointer slot_;
  Recorder served_;
  Recorder asked_;
  std::shared_ptr<Connection> server_;
  std::shared_ptr<Connection> client_;
};

config::TlsFiles only_authority(const config::TlsFiles& files) { return {{}, {}, files.authority}; }
config::TlsFiles without_authority(const config::TlsFiles& files) {
  return {files.certificate, files.key, {}};
}

TEST_F(TlsTest, TransfersSmallFramesAndLargePayloadsInBothDirections) {
  listen(TlsContext::server(without_authority(frontend_)).value());
  connect(TlsContext::client(only_authority(frontend_)).value());
  const Bytes large = pattern((3U << 20U) + 17);
  client_->send(frame_of("small"));
  client_->send(frame_of("large", large));
  server_->send(frame_of("back", large));
  for (int i = 0; i < 1000; ++i) client_->send(frame_of("n" + std::to_string(i)));
  ASSERT_TRUE(loop_.run_until(
      [this] { return served_.messages.size() == 1002 && asked_.messages.size() == 1; }));
  EXPECT_EQ(served_.messages[0], "small");
  EXPECT_EQ(served_.messages[1001], "n999");
  EXPECT_TRUE(std::ranges::equal(served_.payloads[1].view(), large.view()));
  EXPECT_TRUE(std::ranges::equal(asked_.payloads[0].view(), large.view()));
}

TEST_F(TlsTest, SendsQueuedFramesBeforeClosing) {
  listen(TlsContext::server(without_authority(frontend_)).value());
  connect(TlsContext::client(only_authority(frontend_)).value());
  const Bytes large = pattern(2U << 20U);
  server_->send(frame_of("last", large));
  server_->close_after_sending();
  ASSERT_TRUE(both_closed());
  ASSERT_EQ(asked_.payloads.size(), 1U);
  EXPECT_TRUE(std::ranges::equal(asked_.payloads[0].view(), large.view()));
  EXPECT_EQ(asked_.closed->code(), StatusCode::cancelled);
}

TEST_F(TlsTest, MutualTlsShowsThePeersNames) {
  listen(TlsContext::server(frontend_).value());
  connect(TlsContext::client(node_).value());
  client_->send(frame_of("hello"));
  ASSERT_TRUE(loop_.run_until([this] { return !served_.messages.empty(); }));
  EXPECT_TRUE(server_->peer_certifies("n0"));
  EXPECT_FALSE(server_->peer_certifies("n1"));
  EXPECT_THAT(server_->peer_names(), ::testing::ElementsAre("n0"));
  EXPECT_THAT(client_->peer_names(), ::testing::ElementsAre("127.0.0.1", "localhost"));
}

TEST_F(TlsTest, RejectsAClientWithoutARequiredCertificate) {
  listen(TlsContext::server(frontend_).value());
  connect(TlsContext::client(only_authority(frontend_)).value());
  client_->send(frame_of("hello"));
  ASSERT_TRUE(both_closed());
  EXPECT_TRUE(served_.messages.empty());
  EXPECT_TRUE(names(*served_.closed, "certificate"));
  EXPECT_TRUE(names(*asked_.closed, "alert"));
}

TEST_F(TlsTest, BothSidesRejectAnotherAuthority) {
  const Authority other(folder_.path(), "other");
  const config::TlsFiles stranger = other.issue("stranger", {"n0"});
  listen(TlsContext::server(frontend_).value());
  connect(TlsContext::client({stranger.certificate, stranger.key, frontend_.authority}).value());
  client_->send(frame_of("hello"));
  ASSERT_TRUE(both_closed());
  EXPECT_TRUE(served_.messages.empty());
  EXPECT_TRUE(names(*served_.closed, "certificate"));
  EXPECT_TRUE(names(*asked_.closed, "alert"));

  served_ = Recorder();
  asked_ = Recorder();
  server_.reset();
  client_.reset();
  connect(TlsContext::client(only_authority(stranger)).value());
  client_->send(frame_of("hello"));
  ASSERT_TRUE(both_closed());
  EXPECT_TRUE(names(*asked_.closed, "certificate"));
  EXPECT_TRUE(names(*served_.closed, "alert"));
}

TEST_F(TlsTest, AClientRejectsAServerWithAnotherName) {
  const config::TlsFiles elsewhere = authority_.issue("elsewhere", {"elsewhere.example"});
  listen(TlsContext::server(without_authority(elsewhere)).value());
  connect(TlsContext::client(only_authority(elsewhere)).value());
  client_->send(frame_of("hello"));
  ASSERT_TRUE(both_closed());
  EXPECT_TRUE(served_.messages.empty());
  EXPECT_TRUE(names(*asked_.closed, "127.0.0.1"));
}

TEST_F(TlsTest, PlainAndTlsPeersAreDetected) {
  listen(TlsContext::server(without_authority(frontend_)).value());
  connect(nullptr);
  client_->send(frame_of("hello"));
  ASSERT_TRUE(both_closed());
  EXPECT_TRUE(names(*served_.closed, "--tls-authority"));

  served_ = Recorder();
  asked_ = Recorder();
  server_.reset();
  client_.reset();
  listen(nullptr);
  connect(TlsContext::client(only_authority(frontend_)).value());
  client_->send(frame_of("hello"));
  ASSERT_TRUE(both_closed());
  EXPECT_EQ(served_.closed->code(), StatusCode::malformed);
}

TEST_F(TlsTest, APlainClientGetsAPlainErrorFromATlsServer) {
  served_.says_goodbye = true;
  listen(TlsContext::server(without_authority(frontend_)).value());
  connect(nullptr);
  client_->send(frame_of("hello"));
  ASSERT_TRUE(both_closed());
  EXPECT_TRUE(served_.messages.empty());
  ASSERT_EQ(asked_.messages.size(), 1U);
  EXPECT_TRUE(names(asked_.messages[0], "TLS"));
}

TEST_F(TlsTest, ATlsClientSendsNothingInPlain) {
  served_.says_goodbye = true;
  asked_.says_goodbye = true;
  listen(nullptr);
  connect(TlsContext::client(only_authority(frontend_)).value());
  client_->send(frame_of("secret"));
  ASSERT_TRUE(both_closed());
  EXPECT_TRUE(served_.messages.empty());
  EXPECT_TRUE(asked_.messages.empty());
  EXPECT_TRUE(names(*asked_.closed, "--tls-authority"));
}

TEST_F(TlsTest, ClosesAfterTheHandshakeTimeout) {
  ConnectionOptions options;
  options.frame_timeout = 50ms;
  listen(TlsContext::server(without_authority(frontend_)).value(), options);
  asio::ip::tcp::socket silent(loop_.context());
  silent.connect({asio::ip::address_v4::loopback(), listener_->port()});
  ASSERT_TRUE(loop_.run_until([this] { return served_.closed.has_value(); }));
  EXPECT_EQ(served_.closed->code(), StatusCode::timeout);
}

TEST_F(TlsTest, AReadThatEndsTheHandshakeWakesAWaitingWrite) {
  asio::local::stream_protocol::socket near(loop_.context());
  Loop other_loop;
  asio::local::stream_protocol::socket far(other_loop.context());
  asio::local::connect_pair(near, far);
  Stream client(StreamSocket(std::move(near)),
                TlsContext::client(only_authority(frontend_)).value(), "localhost");
  Stream server(StreamSocket(std::move(far)),
                TlsContext::server(without_authority(frontend_)).value());
  client.prepare();
  server.prepare();
  std::array<std::byte, 16> asked{};
  std::array<std::byte, 16> served{};
  const auto ignored = [](const boost::system::error_code&, std::size_t) {};
  const std::array<asio::const_buffer, 1> question{asio::buffer("question", 8)};
  boost::system::error_code error;
  client.write_some(question, error);
  ASSERT_EQ(error, asio::error::would_block);
  bool writable = false;
  client.async_wait_writable([&](const boost::system::error_code&) { writable = true; });
  server.async_read_some(asio::buffer(served), ignored);
  other_loop.run_ready();

  client.async_read_some(asio::buffer(asked), ignored);
  ASSERT_FALSE(client.handshaking());
  EXPECT_TRUE(loop_.run_until([&] { return writable; }));
  EXPECT_EQ(client.write_some(question, error), 8U);
}

TEST_F(TlsTest, AConnectionMayIdleAfterTheHandshake) {
  ConnectionOptions options;
  options.frame_timeout = 50ms;
  listen(TlsContext::server(without_authority(frontend_)).value(), options);
  connect(TlsContext::client(only_authority(frontend_)).value());
  client_->send(frame_of("hello"));
  ASSERT_TRUE(loop_.run_until([this] { return !served_.messages.empty(); }));
  const auto later = std::chrono::steady_clock::now() + 150ms;
  ASSERT_TRUE(loop_.run_until([later] { return std::chrono::steady_clock::now() > later; }));
  EXPECT_FALSE(served_.closed);
}

TEST_F(TlsTest, InvalidFilesAreNamedWithTheFix) {
  const auto refusal = [](const ContextResult& result) {
    EXPECT_FALSE(result.ok());
    return result.status();
  };
  config::TlsFiles files = without_authority(frontend_);
  files.key = folder_.path() / "nowhere.key";
  EXPECT_TRUE(names(refusal(TlsContext::server(files)), files.key.string()));
  files.key = node_.key;
  EXPECT_TRUE(
      names(refusal(TlsContext::server(files)), files.key.string(), files.certificate.string()));
  files.key = frontend_.certificate;
  EXPECT_TRUE(names(refusal(TlsContext::server(files)), files.key.string()));
  files = without_authority(authority_.issue("old", {"localhost"}, -48, -24));
  EXPECT_TRUE(names(refusal(TlsContext::server(files)), files.certificate.string()));
  files = without_authority(authority_.issue("early", {"localhost"}, 24, 48));
  EXPECT_TRUE(names(refusal(TlsContext::server(files)), files.certificate.string()));
  files = frontend_;
  files.authority = frontend_.key;
  EXPECT_TRUE(names(refusal(TlsContext::server(files)), files.authority.string()));
  ::chmod(frontend_.key.c_str(), 0644);
  EXPECT_TRUE(names(refusal(TlsContext::server(frontend_)), frontend_.key.string(), "chmod 600"));
  ::chmod(frontend_.key.c_str(), 0640);
  EXPECT_TRUE(TlsContext::server(frontend_).ok());
}

TEST_F(TlsTest, AContextKnowsTheNamesOfItsCertificate) {
  const TlsContextPointer node = TlsContext::client(node_).value();
  EXPECT_TRUE(node->certifies("n0"));
  EXPECT_FALSE(node->certifies("n1"));
  EXPECT_THAT(node->certified_names(), ::testing::ElementsAre("n0"));
}

}  // namespace
}  // namespace gpulet::net
