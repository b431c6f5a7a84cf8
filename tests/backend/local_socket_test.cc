// FrontendLink and a scripted frontend of the same machine.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/frontend_link.h"
#include "gpulet/net/listener.h"
#include "tests/net/loop.h"

namespace gpulet::backend::local_socket_test {
namespace {

constexpr std::size_t kRow = 100'000;
constexpr GpuletId kGpulet{7};
constexpr GpuletId kForeign{8};  // its batches are not this frontend's

std::shared_ptr<std::vector<std::byte>> fresh(std::size_t bytes) {
  return std::make_shared<std::vector<std::byte>>(bytes);
}
MutableBytes whole(std::shared_ptr<std::vector<std::byte>> memory) {
  const std::span<std::byte> view(*memory);
  return {std::move(memory), view};
}

// What is above the link. Its gpulets have one slot each.
class Host : public FrontendLink::Host {
 public:
  FrontendId next_frontend() override { return {++connections_}; }
  void on_connected(FrontendId) override {}
  void on_disconnected(FrontendId) override { ++disconnections_; }
  void on_command(FrontendId, BackendCommand&& command, Time) override {
    if (auto* batch = std::get_if<Batch>(&command)) batches_.push_back(std::move(*batch));
    if (auto* welcome = std::get_if<Welcome>(&command)) welcomes_.push_back(std::move(*welcome));
  }
  std::optional<MutableBytes> batch_memory(FrontendId, const Batch& batch,
                                           std::size_t bytes) override {
    if (batch.gpulet == kForeign) return MutableBytes();
    if (slot_taken_) return std::nullopt;
    slot_taken_ = true;
    slot_ = fresh(bytes);
    return whole(slot_);
  }
  std::optional<MutableBytes> rows_memory(FrontendId, const Rows&, std::size_t) override {
    return std::nullopt;
  }

  [[nodiscard]] std::uint64_t connections() const { return connections_; }
  [[nodiscard]] int disconnections() const { return disconnections_; }
  [[nodiscard]] const std::vector<Batch>& batches() const { return batches_; }
  [[nodiscard]] const std::vector<Welcome>& welcomes() const { return welcomes_; }
  [[nodiscard]] const std::byte* slot() const { return slot_->data(); }

 private:
  std::uint64_t connections_ = 0;
  int disconnections_ = 0;
  std::vector<Batch> batches_;
  std::vector<Welcome> welcomes_;
  std::shared_ptr<std::vector<std::byte>> slot_;
  bool slot_taken_ = false;
};

// One connection at the frontend's end.
class Frontend : public net::ConnectionHandler {
 public:
  explicit Frontend(net::Stream stream)
      : connection_(net::Connection::start(std::move(stream), {}, *this)) {}

  void say(const BackendCommand& command) { connection_->send(protocol::encode(command)); }
  void say_moved() { connection_->send(protocol::bare_frame(protocol::MessageType::moved)); }
  void move(net::StreamSocket socket) { connection_->move_to(net::Stream(std::move(socket))); }
  void close() { connection_->close({StatusCode::cancelled, "enough"}); }
  [[nodiscard]] bool moved() const { return moved_; }
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] std::size_t heard() const { return heard_; }

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte>) override {
    return whole(fresh(header.payload_bytes));
  }
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte>,
                MutableBytes) override {
    if (header.type == protocol::MessageType::moved) {
      moved_ = connection_->follow();
    } else {
      ++heard_;
    }
  }
  void on_closed(const Status&) override { closed_ = true; }

  bool moved_ = false;
  bool closed_ = false;
  std::size_t heard_ = 0;
  std::shared_ptr<net::Connection> connection_;
};

class LocalSocketTest : public ::testing::Test {
 protected:
  LocalSocketTest() {
    auto port =
        net::Listener::listen(loop_.executor(), "127.0.0.1", 0, {},
                              [this](net::Stream stream, net::ConnectionSlotPointer slot) {
                                slots_.push_back(std::move(slot));
                                frontends_.push_back(std::make_unique<Frontend>(std::move(stream)));
                              });
    port_ = std::move(port).value();
    auto door = net::LocalListener::listen(
        loop_.executor(), {}, [this](const std::string& secret, net::StreamSocket socket) {
          secrets_.push_back(secret);
          socket_.emplace(std::move(socket));
        });
    door_ = std::move(door).value();
  }
  void start(bool local_socket = true) {
    link_ = std::make_unique<FrontendLink>(loop_.executor(),
                                           config::Endpoint{"127.0.0.1", port_->port()},
                                           FrontendLink::Options{{}, "n0", local_socket}, host_);
    link_->start();
    ASSERT_TRUE(loop_.run_until([&] { return frontends_.size() == 1; }));
  }
  [[nodiscard]] Frontend& frontend() { return *frontends_.back(); }
  void welcome(const std::optional<LocalOffer>& offer) {
    Welcome welcome{std::chrono::seconds(60)};
    welcome.local = offer;
    const std::size_t before = host_.welcomes().size();
    frontend().say(welcome);
    ASSERT_TRUE(loop_.run_until([&] { return host_.welcomes().size() > before; }));
  }
  [[nodiscard]] LocalOffer offer() const {
    return {door_->name(), secret_, net::LocalListener::user()};
  }
  // The frontend moves, with that descriptor.
  void move(int descriptor = -1) {
    ASSERT_TRUE(loop_.run_until([&] { return socket_.has_value(); }));
    ASSERT_TRUE(net::send_descriptor(*socket_, descriptor));
    frontend().move(*std::exchange(socket_, std::nullopt));
  }
  void start_and_move(int descriptor = -1) {
    start();
    welcome(offer());
    move(descriptor);
    ASSERT_TRUE(loop_.run_until([&] { return frontend().moved(); }));
  }
  // With memory of that many rows, each filled with its number.
  void start_with_memory(std::size_t rows) {
    memory_ = net::SharedMemory::create(rows * kRow).value();
    block_ = memory_->allocate(rows * kRow);
    for (std::size_t row = 0; row < rows; ++row)
      std::memset(block_ + row * kRow, static_cast<int>(row), kRow);
    start_and_move(memory_->reader().value().get());
  }
  [[nodiscard]] static Batch batch_of(std::vector<SharedSlice> slices, GpuletId gpulet = kGpulet) {
    Batch batch;
    batch.id = {1};
    batch.gpulet = gpulet;
    batch.model = "a";
    batch.count = 1;
    batch.shared = std::move(slices);
    return batch;
  }
  // Sends a batch and expects the link to take it.
  [[nodiscard]] const Batch& run(const Batch& batch) {
    const std::size_t before = host_.batches().size();
    frontend().say(batch);
    EXPECT_TRUE(loop_.run_until([&] { return host_.batches().size() > before; }));
    return host_.batches().back();
  }
  [[nodiscard]] bool is_dropped() {
    return loop_.run_until([&] { return host_.disconnections() == 1; });
  }

  net::testing::Loop loop_;
  Host host_;
  std::unique_ptr<net::Listener> port_;
  std::vector<net::ConnectionSlotPointer> slots_;
  std::unique_ptr<net::LocalListener> door_;
  const std::string secret_ = net::draw_local_secret();
  std::vector<std::string> secrets_;
  std::optional<net::StreamSocket> socket_;
  std::shared_ptr<net::SharedMemory> memory_;
  std::byte* block_ = nullptr;
  std::vector<std::unique_ptr<Frontend>> frontends_;
  std::unique_ptr<FrontendLink> link_;
};

TEST_F(LocalSocketTest, GoesOnOverTheSocketThatItIsOffered) {
  start_and_move();
  EXPECT_EQ(secrets_, std::vector{secret_});
  EXPECT_FALSE(host_.welcomes().front().local.has_value()) << "the secret is the link's alone";
  link_->send(protocol::encode(BackendMessage(Heartbeat{})));
  ASSERT_TRUE(loop_.run_until([&] { return frontend().heard() == 1; }));
  Batch batch = batch_of({});
  batch.inputs = {Bytes::own(std::vector<std::byte>(kRow, std::byte{5}))};
  EXPECT_EQ(run(batch).inputs.front().size(), kRow);
  EXPECT_EQ(host_.connections(), 1U) << "it is the same connection";
}

TEST_F(LocalSocketTest, StaysWithTcpWhereThereIsNoSuchSocket) {
  start();
  LocalOffer elsewhere = offer();
  elsewhere.name = "gpulet-of-another-machine";
  welcome(elsewhere);
  LocalOffer of_another = offer();
  ++of_another.user;
  welcome(of_another);
  LocalOffer bad = offer();
  bad.secret = "short";
  welcome(bad);
  loop_.run_ready();
  EXPECT_TRUE(secrets_.empty());
  link_->send(protocol::encode(BackendMessage(Heartbeat{})));
  ASSERT_TRUE(loop_.run_until([&] { return frontend().heard() == 1; }));
  EXPECT_EQ(host_.disconnections(), 0);
}

TEST_F(LocalSocketTest, StaysWithTcpWhereTheFrontendDoesNotMove) {
  start();
  welcome(offer());
  ASSERT_TRUE(loop_.run_until([&] { return socket_.has_value(); }));
  socket_.reset();
  link_->send(protocol::encode(BackendMessage(Heartbeat{})));
  ASSERT_TRUE(loop_.run_until([&] { return frontend().heard() == 1; }));
  EXPECT_EQ(host_.disconnections(), 0);
}

TEST_F(LocalSocketTest, TakesNoOfferWhereItIsOff) {
  start(false);
  welcome(offer());
  loop_.run_ready();
  EXPECT_TRUE(secrets_.empty());
}

TEST_F(LocalSocketTest, DropsAFrontendThatMovesUnasked) {
  start();
  welcome({});
  frontend().say_moved();
  EXPECT_TRUE(is_dropped());
}

TEST_F(LocalSocketTest, DropsAFrontendWithoutTheFirstByte) {
  start();
  welcome(offer());
  ASSERT_TRUE(loop_.run_until([&] { return socket_.has_value(); }));
  frontend().say_moved();
  EXPECT_TRUE(is_dropped());
}

TEST_F(LocalSocketTest, ReconnectsOverTcpWhenTheSocketBreaksEarly) {
  start_and_move();
  frontend().close();
  ASSERT_TRUE(loop_.run_until([&] { return frontends_.size() == 2; }));
  EXPECT_EQ(host_.connections(), 2U);
  secrets_.clear();
  welcome(offer());
  loop_.run_ready();
  EXPECT_TRUE(secrets_.empty()) << "what broke once may break again";
}

TEST_F(LocalSocketTest, ReadsInputsFromSharedMemoryIntoTheSlot) {
  start_with_memory(3);
  const std::uint64_t begin = memory_->find(Bytes(nullptr, {block_, 1}))->offset;
  const Batch& batch = run(batch_of({{begin + 2 * kRow, kRow}, {begin, 10}}));
  EXPECT_TRUE(batch.shared.empty());
  ASSERT_EQ(batch.inputs.size(), 1U);
  const auto view = batch.inputs.front().view();
  EXPECT_EQ(view.data(), host_.slot());
  ASSERT_EQ(view.size(), kRow + 10);
  EXPECT_TRUE(std::ranges::all_of(view.first(kRow), [](std::byte b) { return b == std::byte{2}; }));
  EXPECT_TRUE(std::ranges::all_of(view.last(10), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(LocalSocketTest, ReadsThemIntoMemoryOfItsOwnWhereNoSlotIsFree) {
  start_with_memory(2);
  (void)run(batch_of({{0, kRow}}));
  const Batch& batch = run(batch_of({{kRow, kRow}}));
  ASSERT_EQ(batch.inputs.front().size(), kRow);
  EXPECT_EQ(batch.inputs.front().view().front(), std::byte{1});
  EXPECT_NE(batch.inputs.front().view().data(), host_.slot());
}

TEST_F(LocalSocketTest, DiscardsTheInputsOfABatchThatIsNotTheFrontends) {
  start_with_memory(1);
  EXPECT_TRUE(run(batch_of({{0, kRow}}, kForeign)).inputs.front().empty());
}

TEST_F(LocalSocketTest, DropsAFrontendWhoseSlicesAreOutsideTheMemory) {
  start_with_memory(1);
  frontend().say(batch_of({{0, kRow}, {~std::uint64_t{0}, 2}}));
  EXPECT_TRUE(is_dropped());
  EXPECT_TRUE(host_.batches().empty());
}

TEST_F(LocalSocketTest, DropsAFrontendWhoseSlicesAreLongerThanAnyBatch) {
  start_with_memory(100);
  std::vector<SharedSlice> slices(100, SharedSlice{0, 100 * kRow});
  frontend().say(batch_of(std::move(slices)));
  EXPECT_TRUE(is_dropped());
}

TEST_F(LocalSocketTest, DropsAFrontendThatNamesMemoryItDoesNotShare) {
  start_and_move();
  frontend().say(batch_of({{0, 1}}));
  EXPECT_TRUE(is_dropped());
}

TEST_F(LocalSocketTest, DropsAFrontendWhoseMemoryCouldShrink) {
  const FileDescriptor file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  start();
  welcome(offer());
  move(file.get());
  EXPECT_TRUE(is_dropped());
  ASSERT_TRUE(loop_.run_until([&] { return frontends_.size() == 2; }));
  secrets_.clear();
  welcome(offer());
  loop_.run_ready();
  EXPECT_TRUE(secrets_.empty()) << "it stays with TCP";
}

TEST(LocalChoice, DoesNotTakeAnOfferAfterAConnectionThatBrokeEarly) {
  const auto at_s = [](int s) { return Time(std::chrono::seconds(s)); };
  LocalChoice choice(true);
  EXPECT_TRUE(choice.takes_offer());
  choice.on_closed(at_s(1));
  EXPECT_TRUE(choice.takes_offer()) << "it had not moved";
  choice.on_moved(at_s(10));
  choice.on_closed(at_s(11));
  EXPECT_FALSE(choice.takes_offer());
  choice.on_closed(at_s(100));
  EXPECT_TRUE(choice.takes_offer()) << "one connection later";
  choice.on_moved(at_s(200));
  choice.on_closed(Time(std::chrono::seconds(200)) + LocalChoice::kShortest);
  EXPECT_TRUE(choice.takes_offer());
  EXPECT_FALSE(LocalChoice(false).takes_offer());
}

}  // namespace
}  // namespace gpulet::backend::local_socket_test
