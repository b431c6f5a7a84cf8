#include "gpulet/net/listener.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/net/connection.h"
#include "tests/net/loop.h"
#include "tests/support/names.h"

namespace gpulet::net {
namespace {

using support::names;
using namespace testing;
using namespace std::chrono_literals;

// ---- ConnectionSlots

constexpr ConnectionSlot::TimePoint kNow{1h};

class FakeConnection final : public ConnectionSlot::Holder {
 public:
  FakeConnection(ConnectionSlots& slots, const std::string& address, State state, Duration age)
      : state_(state), since_(kNow - age), slot_(slots.take(address, kNow)) {
    if (slot_) slot_->set_holder(*this);
  }
  [[nodiscard]] Activity activity() const override { return {state_, since_}; }
  void evict() override {
    evicted = true;
    slot_.reset();
  }
  [[nodiscard]] bool has_slot() const { return slot_ != nullptr; }
  [[nodiscard]] bool reserved() const { return slot_ && slot_->reserved(); }

  bool evicted = false;

 private:
  State state_;
  ConnectionSlot::TimePoint since_;
  ConnectionSlotPointer slot_;
};

// Has its slot before it exists. Returns it when it is evicted, in its constructor if need be.
class LateConnection final : public ConnectionSlot::Holder {
 public:
  explicit LateConnection(ConnectionSlotPointer slot) : slot_(std::move(slot)) {
    slot_->set_holder(*this);
  }
  [[nodiscard]] Activity activity() const override { return {}; }
  void evict() override {
    evicted = true;
    slot_.reset();
  }

  bool evicted = false;

 private:
  ConnectionSlotPointer slot_;
};

using State = ConnectionSlot::Holder::State;

class ConnectionSlotsTest : public ::testing::Test {
 protected:
  FakeConnection& add(const std::string& address, State state, Duration age = 0s) {
    all_.push_back(std::make_unique<FakeConnection>(*slots_, address, state, age));
    return *all_.back();
  }
  void limit(const ConnectionLimits& limits) { slots_ = std::make_unique<ConnectionSlots>(limits); }

  std::unique_ptr<ConnectionSlots> slots_;
  std::vector<std::unique_ptr<FakeConnection>> all_;
};

TEST_F(ConnectionSlotsTest, EvictsSilentConnectionsOldestFirst) {
  limit({.general = 3});
  const FakeConnection& younger = add("a", State::silent, 1s);
  const FakeConnection& oldest = add("b", State::silent, 3s);
  const FakeConnection& idle = add("c", State::idle, 60s);
  EXPECT_TRUE(add("d", State::busy).has_slot());
  EXPECT_TRUE(oldest.evicted);
  EXPECT_FALSE(younger.evicted);
  EXPECT_FALSE(idle.evicted);
  EXPECT_EQ(slots_->taken(), 3U);
}

TEST_F(ConnectionSlotsTest, EvictsIdleConnectionsAfterAWhileAndBusyOnesNever) {
  limit({.general = 3});
  const FakeConnection& busy = add("a", State::busy, 100s);
  const FakeConnection& idle = add("b", State::idle, 60s);
  const FakeConnection& just_now = add("c", State::idle, 1s);
  EXPECT_TRUE(add("d", State::busy).has_slot());
  EXPECT_TRUE(idle.evicted);
  EXPECT_FALSE(add("e", State::busy).has_slot());
  EXPECT_FALSE(busy.evicted);
  EXPECT_FALSE(just_now.evicted);
  EXPECT_EQ(slots_->rejected(), 1U);
}

TEST_F(ConnectionSlotsTest, ReservedSlotsAreNotHeldBySilentConnections) {
  limit({.general = 1, .reserve = 1});
  EXPECT_FALSE(add("a", State::busy).reserved());
  const FakeConnection& silent = add("b", State::silent);
  EXPECT_TRUE(silent.reserved());
  EXPECT_TRUE(add("c", State::busy).reserved());
  EXPECT_TRUE(silent.evicted);
  EXPECT_FALSE(add("d", State::busy).has_slot());
}

TEST_F(ConnectionSlotsTest, LimitsTheConnectionsOfAnAddress) {
  limit({.general = 8, .reserve = 1, .per_address = 2});
  const FakeConnection& other = add("b", State::silent, 100s);
  const FakeConnection& silent = add("a", State::silent);
  add("a", State::busy);
  EXPECT_FALSE(add("a", State::busy).reserved());
  EXPECT_TRUE(silent.evicted) << "of the same address";
  EXPECT_FALSE(other.evicted);
  EXPECT_TRUE(add("a", State::busy).reserved());
  EXPECT_FALSE(add("a", State::busy).has_slot());
  EXPECT_FALSE(add("b", State::busy).reserved());
}

TEST_F(ConnectionSlotsTest, EvictsManyAtOnce) {
  limit({.general = 640});
  for (int i = 0; i < 640; ++i) add("a", State::silent, std::chrono::seconds(i));
  EXPECT_TRUE(add("b", State::busy).has_slot());
  EXPECT_EQ(slots_->evicted(), 10U);
}

// A connection is accepted on one thread and may have another one as its own.
TEST_F(ConnectionSlotsTest, EvictsConnectionsOnTheirWayToTheirThread) {
  limit({.general = 2});
  ConnectionSlotPointer first = slots_->take("a", kNow);
  ConnectionSlotPointer second = slots_->take("a", kNow + 1s);
  EXPECT_EQ(slots_->take("b", kNow + 2s), nullptr);
  first->start_journey();
  second->start_journey();
  const ConnectionSlotPointer third = slots_->take("b", kNow + 3s);
  EXPECT_NE(third, nullptr);
  EXPECT_EQ(slots_->evicted(), 1U);
  LateConnection late(std::move(first));
  EXPECT_TRUE(late.evicted);
  LateConnection other(std::move(second));
  EXPECT_FALSE(other.evicted);
  EXPECT_EQ(slots_->taken(), 2U);
}

TEST_F(ConnectionSlotsTest, SlotsMayOutliveTheTable) {
  limit({.general = 2});
  add("a", State::busy);
  slots_.reset();
  all_.clear();
}

TEST(AddressKey, CoversAnIpv6NetworkAndBothFormsOfIpv4) {
  const auto key = [](const char* text) { return address_key(asio::ip::make_address(text)); };
  EXPECT_EQ(key("2001:db8::1"), key("2001:db8::ffff:1"));
  EXPECT_NE(key("2001:db8::1"), key("2001:db8:0:1::1"));
  EXPECT_EQ(key("10.0.0.1"), key("::ffff:10.0.0.1"));
  EXPECT_NE(key("10.0.0.1"), key("10.0.0.2"));
}

// ---- Listener

struct Accepted {
  Stream socket;
  ConnectionSlotPointer slot;
};

class ListenerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Listener> listen(const ListenerOptions& options = {}) {
    return Listener::listen(loop_.executor(), "127.0.0.1", 0, options,
                            [this](Stream socket, ConnectionSlotPointer slot) {
                              accepted_.push_back({std::move(socket), std::move(slot)});
                            })
        .value();
  }

  [[nodiscard]] asio::ip::tcp::socket client_of(const Listener& listener) {
    asio::ip::tcp::socket client(loop_.context());
    client.connect({asio::ip::address_v4::loopback(), listener.port()});
    return client;
  }

  Loop loop_;
  std::vector<Accepted> accepted_;
};

// Keeps the process from getting further file descriptors.
class NoDescriptorsLeft {
 public:
  NoDescriptorsLeft() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = dup(0);
    close(lowest_free);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest_free);
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptorsLeft() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptorsLeft(const NoDescriptorsLeft&) = delete;
  NoDescriptorsLeft& operator=(const NoDescriptorsLeft&) = delete;

 private:
  rlimit before_{};
};

bool peer_closed(asio::ip::tcp::socket& socket) {
  socket.non_blocking(true);
  std::byte byte{};
  boost::system::error_code error;
  socket.read_some(asio::buffer(&byte, 1), error);
  return error && error != asio::error::would_block;
}

TEST_F(ListenerTest, AcceptsOnAFreePort) {
  const auto listener = listen();
  EXPECT_EQ(listener->local_address(), "127.0.0.1:" + std::to_string(listener->port()));
  const auto first = client_of(*listener);
  const auto second = client_of(*listener);
  ASSERT_TRUE(loop_.run_until([&] { return accepted_.size() == 2; }));
  EXPECT_EQ(listener->connections(), 2U);
}

TEST_F(ListenerTest, ClosesConnectionsAboveItsLimit) {
  ListenerOptions options;
  options.connections.general = 1;
  const auto listener = listen(options);
  const auto first = client_of(*listener);
  auto second = client_of(*listener);
  ASSERT_TRUE(loop_.run_until([&] { return peer_closed(second); }));
  EXPECT_EQ(accepted_.size(), 1U);
  accepted_.clear();
  const auto third = client_of(*listener);
  ASSERT_TRUE(loop_.run_until([&] { return accepted_.size() == 1; }));
}

TEST_F(ListenerTest, SurvivesRunningOutOfDescriptors) {
  // UBSan inspects types through a pipe, and reports a wrong type if it cannot open one.
  if (std::string_view(GPULET_SANITIZERS).find("undefined") != std::string_view::npos) {
    GTEST_SKIP() << "UBSan needs descriptors of its own; the other builds run it";
  }
  const auto listener = listen();
  asio::ip::tcp::socket client(loop_.context());
  client.open(asio::ip::tcp::v4());
  {
    const NoDescriptorsLeft nothing_left;
    client.connect({asio::ip::address_v4::loopback(), listener->port()});
    ASSERT_TRUE(loop_.run_until([&] { return listener->failed_accepts() >= 2; }));
    EXPECT_TRUE(accepted_.empty());
  }
  ASSERT_TRUE(loop_.run_until([&] { return accepted_.size() == 1; }));
}

TEST_F(ListenerTest, StopsAcceptingOnceClosed) {
  const auto listener = listen();
  const std::uint16_t port = listener->port();
  listener->close();
  loop_.run_ready();
  asio::ip::tcp::socket client(loop_.context());
  boost::system::error_code error;
  client.connect({asio::ip::address_v4::loopback(), port}, error);
  EXPECT_EQ(error, asio::error::connection_refused);
}

TEST_F(ListenerTest, NamesTheAddressThatItCannotUse) {
  const auto listener = listen();
  const auto taken =
      Listener::listen(loop_.executor(), "127.0.0.1", listener->port(), {}, Listener::OnSocket());
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(taken.status(), listener->local_address()));
  EXPECT_EQ(
      Listener::listen(loop_.executor(), "nowhere", 0, {}, Listener::OnSocket()).status().code(),
      StatusCode::invalid);
}

class ConnectorTest : public ListenerTest {
 protected:
  [[nodiscard]] Result<Stream> connect(const std::string& host, std::uint16_t port,
                                       const ConnectorOptions& options = {}) {
    Connector connector(loop_.executor(), host, port, options);
    std::optional<Result<Stream>> done;
    connector.connect([&](Result<Stream> result) { done.emplace(std::move(result)); });
    if (!loop_.run_until([&] { return done.has_value(); }))
      return Status(StatusCode::internal, "no answer");
    return std::move(*done);
  }
};

TEST_F(ConnectorTest, ConnectsToAnAddressAndToAName) {
  const auto listener = listen();
  EXPECT_TRUE(connect("127.0.0.1", listener->port()).ok());
  EXPECT_TRUE(connect("localhost", listener->port()).ok());
  EXPECT_TRUE(loop_.run_until([&] { return accepted_.size() == 2; }));
}

TEST_F(ConnectorTest, NamesTheAddressThatRefuses) {
  auto listener = listen();
  const std::uint16_t port = listener->port();
  listener.reset();
  loop_.run_ready();
  const auto result = connect("127.0.0.1", port);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(result.status(), "127.0.0.1:" + std::to_string(port)));
}

TEST_F(ConnectorTest, TimesOut) {
  // Connections to a full backlog wait in the kernel.
  asio::ip::tcp::acceptor deaf(loop_.context(), {asio::ip::address_v4::loopback(), 0});
  deaf.listen(0);
  std::vector<asio::ip::tcp::socket> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back(loop_.context());
    waiting.back().async_connect(deaf.local_endpoint(), [](const boost::system::error_code&) {});
  }
  ConnectorOptions options;
  options.timeout = 50ms;
  const auto result = connect("127.0.0.1", deaf.local_endpoint().port(), options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::timeout);
  EXPECT_TRUE(names(result.status(), "50 ms"));
}

TEST_F(ConnectorTest, RetriesWithBackoff) {
  auto listener = listen();
  const std::uint16_t port = listener->port();
  listener.reset();
  loop_.run_ready();
  ConnectorOptions options;
  options.first_pause = 1ms;
  options.longest_pause = 4ms;
  Connector connector(loop_.executor(), "127.0.0.1", port, options);
  std::vector<Duration> pauses;
  int connected = 0;
  connector.connect_with_retry([&](Stream) { ++connected; },
                               [&](const Status&, Duration pause) {
                                 pauses.push_back(pause);
                                 if (pauses.size() != 4) return;
                                 listener =
                                     Listener::listen(loop_.executor(), "127.0.0.1", port, {},
                                                      [](Stream, ConnectionSlotPointer) {})
                                         .value();
                               });
  ASSERT_TRUE(loop_.run_until([&] { return connected == 1; }));
  EXPECT_EQ(pauses, (std::vector<Duration>{1ms, 2ms, 4ms, 4ms}));
}

TEST_F(ConnectorTest, MayBeDestroyedInItsCallbackAndWhileConnecting) {
  const auto listener = listen();
  auto connector = std::make_unique<Connector>(loop_.executor(), "127.0.0.1", listener->port(),
                                               ConnectorOptions{});
  connector->connect([&](const Result<Stream>&) { connector.reset(); });
  ASSERT_TRUE(loop_.run_until([&] { return connector == nullptr; }));

  bool called = false;
  connector = std::make_unique<Connector>(loop_.executor(), "localhost", listener->port(),
                                          ConnectorOptions{});
  connector->connect([&](const Result<Stream>&) { called = true; });
  connector.reset();
  loop_.run_ready();
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace gpulet::net
