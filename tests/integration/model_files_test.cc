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
#include "gpulet/net/connection.h"
#include "gpulet/protocol/codec.h"
#include "tests/net/loop.h"
#include "tests/support/certificates/certificates.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing {
namespace {

constexpr std::uint64_t kPieces = 32;

// A backend that requests all pieces of its first model at once.
class Fetcher final : public net::ConnectionHandler {
 public:
  // Called with the first piece, before the frontend sends the others.
  std::function<void()> on_first_piece;

  void connect(net::testing::Loop& loop, std::uint16_t port, const config::TlsFiles& files) {
    net::ConnectorOptions options;
    options.tls = net::TlsContext::client(files).value();
    connector_.emplace(loop.executor(), "127.0.0.1", port, options);
    connector_->connect([this](Result<net::Stream> stream) {
      ASSERT_TRUE(stream.ok()) << stream.status().to_string();
      connection_ = net::Connection::start(std::move(stream).value(), {}, *this);
      Hello hello;
      hello.node = "n0";
      DeviceOffer offer;
      offer.device = {{"n0", 0}, "card", "simulated", {Share{20}, Share{50}, Share{100}}};
      offer.mechanism = "simulated";
      hello.devices.push_back(offer);
      say(hello);
    });
  }

  [[nodiscard]] bool done() const { return closed_ || pieces_.size() == kPieces; }
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] const std::vector<ModelPiece>& pieces() const { return pieces_; }

 private:
  void say(BackendMessage message) { connection_->send(protocol::encode(message)); }

  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte>) override {
    auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
    const std::span<std::byte> view(*memory);
    return MutableBytes(std::move(memory), view);
  }
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    auto decoded = protocol::decode<BackendCommand>(header, message, payload.freeze());
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    if (const auto* create = std::get_if<CreateGpulet>(&decoded.value())) {
      if (std::exchange(asked_, true)) return;
      for (std::uint64_t i = 0; i < kPieces; ++i)
        say(ModelPieceRequest{create->models.at(0).sha256, i * kModelPieceBytes});
    } else if (auto* piece = std::get_if<ModelPiece>(&decoded.value())) {
      if (pieces_.empty()) on_first_piece();
      pieces_.push_back(std::move(*piece));
    } else if (std::holds_alternative<Heartbeat>(decoded.value())) {
      say(Heartbeat{});
    }
  }
  void on_closed(const Status&) override { closed_ = true; }

  std::optional<net::Connector> connector_;
  std::shared_ptr<net::Connection> connection_;
  std::vector<ModelPiece> pieces_;
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
      std::ofstream(file_) << std::string(kPieces * kModelPieceBytes, 'a');
    };
    return changes;
  }

  // The received pieces if `change` is applied to the file after the first one.
  std::vector<ModelPiece> fetch(const std::function<void()>& change) {
    Cluster cluster({{"a", 2, 500, 50}}, {}, secured());
    net::testing::Loop loop;
    Fetcher fetcher;
    fetcher.on_first_piece = change;
    fetcher.connect(loop, cluster.backend_port(), authority_.issue("n0", {"n0"}));
    EXPECT_TRUE(loop.run_until([&] { return fetcher.done(); }));
    EXPECT_FALSE(fetcher.closed());
    EXPECT_TRUE(load::fetch_status(config::Endpoint{"127.0.0.1", cluster.client_port()}).ok())
        << "the frontend still serves";
    return fetcher.pieces();
  }

  support::TemporaryFolder folder_;
  Authority authority_{folder_.path(), "authority"};
  config::TlsFiles frontend_ = authority_.issue("frontend", {"127.0.0.1"});
  std::filesystem::path file_;
};

TEST_F(ModelFilesTest, AnUnchangedFileArrivesComplete) {
  const auto pieces = fetch([] {});
  ASSERT_EQ(pieces.size(), kPieces);
  for (const ModelPiece& piece : pieces) {
    EXPECT_EQ(piece.data.size(), kModelPieceBytes);
    EXPECT_FALSE(piece.changed);
  }
}

TEST_F(ModelFilesTest, AFileTruncatedInPlaceLosesItsPiecesOnly) {
  const auto pieces = fetch([this] { std::filesystem::resize_file(file_, 0); });
  ASSERT_EQ(pieces.size(), kPieces);
  for (const ModelPiece& piece : pieces) {
    if (piece.total_bytes == 0) {
      EXPECT_TRUE(piece.data.empty());
    } else {
      EXPECT_EQ(piece.data.view().front(), std::byte{'a'});
    }
  }
}

TEST_F(ModelFilesTest, AFileRewrittenInPlaceIsNotSentAsTheHashedOne) {
  const auto pieces =
      fetch([this] { std::ofstream(file_) << std::string(kPieces * kModelPieceBytes, 'b'); });
  ASSERT_EQ(pieces.size(), kPieces);
  for (const ModelPiece& piece : pieces) {
    if (piece.total_bytes > 0) {
      EXPECT_EQ(piece.data.view().front(), std::byte{'a'});
    }
  }
}

}  // namespace
}  // namespace gpulet::testing
