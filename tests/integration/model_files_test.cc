// Model files that change on the frontend's machine while a backend fetches them over TLS.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gpulet/load/call.h"
#include "gpulet/net/codec/codec.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/connector.h"
#include "tests/net/loop.h"
#include "tests/support/certificates/certificates.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing {
namespace {

constexpr std::uint64_t kPieces = 32;

// A backend that asks for all pieces of the first model that it is to serve at once.
class Fetcher final : public net::ConnectionHandler {
 public:
  // Called with the first piece, while the frontend still has the others to send.
  std::function<void()> on_first_piece;

  void connect(net::testing::Loop& loop, std::uint16_t port, const config::TlsFiles& files) {
    net::ConnectorOptions options;
    options.tls = net::TlsContext::client(files).value();
    connector_.emplace(loop.executor(), "127.0.0.1", port, options);
    connector_->connect([this](Result<net::Stream> stream) {
      ASSERT_TRUE(stream.ok()) << stream.status().to_string();
      connection_ = net::Connection::start(std::move(stream).value(), {}, *this);
      serve::Hello hello;
      hello.node = "n0";
      serve::DeviceOffer offer;
      offer.device = {{"n0", 0}, "card", "simulated", {Share{20}, Share{50}, Share{100}}};
      offer.mechanism = "simulated";
      hello.devices.push_back(offer);
      say(hello);
    });
  }

  [[nodiscard]] bool done() const { return closed_ || pieces_.size() == kPieces; }
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] const std::vector<serve::ModelPiece>& pieces() const { return pieces_; }

 private:
  void say(serve::BackendMessage message) { connection_->send(net::encode(message)); }

  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte>) override {
    auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
    const std::span<std::byte> view(*memory);
    return MutableBytes(std::move(memory), view);
  }
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    auto decoded = net::decode_backend_command(header, message, payload.freeze());
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    if (const auto* create = std::get_if<serve::CreateGpulet>(&decoded.value())) {
      if (std::exchange(asked_, true)) return;
      for (std::uint64_t i = 0; i < kPieces; ++i)
        say(serve::ModelWanted{create->models.at(0).sha256, i * serve::kModelPieceBytes});
    } else if (auto* piece = std::get_if<serve::ModelPiece>(&decoded.value())) {
      if (pieces_.empty()) on_first_piece();
      pieces_.push_back(std::move(*piece));
    } else if (std::holds_alternative<serve::Heartbeat>(decoded.value())) {
      say(serve::Heartbeat{});
    }
  }
  void on_closed(const Status&) override { closed_ = true; }

  std::optional<net::Connector> connector_;
  std::shared_ptr<net::Connection> connection_;
  std::vector<serve::ModelPiece> pieces_;
  bool asked_ = false;
  bool closed_ = false;
};

class ModelFilesTest : public ::testing::Test {
 protected:
  ClusterChanges secured() {
    ClusterChanges changes;
    changes.frontend = [this](config::FrontendConfig& config) {
      config.backend_tls = frontend_;
      file_ = config.models.parent_path() / "a.pt";
      std::ofstream(file_) << std::string(kPieces * serve::kModelPieceBytes, 'a');
    };
    return changes;
  }

  // What came of the pieces where `change` is done to the file once the first is here.
  std::vector<serve::ModelPiece> fetch(const std::function<void()>& change) {
    Cluster cluster({{"a", 2, 500, 50}}, {}, secured());
    net::testing::Loop loop;
    Fetcher fetcher;
    fetcher.on_first_piece = change;
    fetcher.connect(loop, cluster.backend_port(), authority_.issue("n0", {"n0"}));
    EXPECT_TRUE(loop.run_until([&] { return fetcher.done(); }));
    EXPECT_FALSE(fetcher.closed());
    EXPECT_TRUE(load::fetch_status(config::Endpoint{"127.0.0.1", cluster.client_port()}).ok())
        << "the frontend serves on";
    return fetcher.pieces();
  }

  support::TemporaryFolder folder_;
  Authority authority_{folder_.path(), "authority"};
  config::TlsFiles frontend_ = authority_.issue("frontend", {"127.0.0.1"});
  std::filesystem::path file_;
};

TEST_F(ModelFilesTest, OneThatStaysAsItIsArrivesWhole) {
  const auto pieces = fetch([] {});
  ASSERT_EQ(pieces.size(), kPieces);
  for (const serve::ModelPiece& piece : pieces) {
    EXPECT_EQ(piece.data.size(), serve::kModelPieceBytes);
    EXPECT_FALSE(piece.changed);
  }
}

TEST_F(ModelFilesTest, OneTruncatedInPlaceCostsItsPiecesAndNotTheFrontend) {
  const auto pieces = fetch([this] { std::filesystem::resize_file(file_, 0); });
  ASSERT_EQ(pieces.size(), kPieces);
  for (const serve::ModelPiece& piece : pieces) {
    if (piece.total_bytes == 0) {
      EXPECT_TRUE(piece.data.empty());
    } else {
      EXPECT_EQ(piece.data.view().front(), std::byte{'a'});
    }
  }
}

TEST_F(ModelFilesTest, OneRewrittenInPlaceIsNeverSentAsTheOneThatWasHashed) {
  const auto pieces = fetch(
      [this] { std::ofstream(file_) << std::string(kPieces * serve::kModelPieceBytes, 'b'); });
  ASSERT_EQ(pieces.size(), kPieces);
  for (const serve::ModelPiece& piece : pieces) {
    if (piece.total_bytes > 0) {
      EXPECT_EQ(piece.data.view().front(), std::byte{'a'});
    }
  }
}

}  // namespace
}  // namespace gpulet::testing
