#include "gpulet/net/listener.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>
#include <string_view>
#include <vector>

#include "gpulet/net/connector.h"
#include "tests/net/loop.h"

namespace gpulet::net {
namespace {

using namespace testing;
using namespace std::chrono_literals;

struct Accepted {
  Stream socket;
  ConnectionSlot slot;
};

class ListenerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Listener> listen(const ListenerOptions& options = {}) {
    return Listener::listen(loop_.executor(), "127.0.0.1", 0, options,
                            [this](Stream socket, ConnectionSlot slot) {
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

// While it lives, the process gets no further file descriptor.
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

TEST_F(ListenerTest, accepts_on_a_free_port_and_tells_its_address) {
  const auto listener = listen();
  EXPECT_EQ(listener->local_address(), "127.0.0.1:" + std::to_string(listener->port()));
  const auto first = client_of(*listener);
  const auto second = client_of(*listener);
  ASSERT_TRUE(loop_.run_until([&] { return accepted_.size() == 2; }));
  EXPECT_EQ(listener->connections(), 2U);
}

TEST_F(ListenerTest, closes_at_once_what_is_above_its_limit_and_accepts_again_when_a_slot_is_free) {
  ListenerOptions options;
  options.places.general = 1;
  const auto listener = listen(options);
  const auto first = client_of(*listener);
  auto second = client_of(*listener);
  ASSERT_TRUE(loop_.run_until([&] { return peer_closed(second); }));
  EXPECT_EQ(accepted_.size(), 1U);
  accepted_.clear();
  const auto third = client_of(*listener);
  ASSERT_TRUE(loop_.run_until([&] { return accepted_.size() == 1; }));
}

TEST_F(ListenerTest, survives_running_out_of_descriptors) {
  // UBSan looks at an object's type through a pipe that it opens for it, and reports a wrong type
  // where it cannot.
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

TEST_F(ListenerTest, accepts_no_more_once_closed) {
  const auto listener = listen();
  const std::uint16_t port = listener->port();
  listener->close();
  loop_.run_ready();
  asio::ip::tcp::socket client(loop_.context());
  boost::system::error_code error;
  client.connect({asio::ip::address_v4::loopback(), port}, error);
  EXPECT_EQ(error, asio::error::connection_refused);
}

TEST_F(ListenerTest, says_which_address_it_cannot_use) {
  const auto listener = listen();
  const auto taken = Listener::listen(loop_.executor(), "127.0.0.1", listener->port(), {}, {});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.status().code(), StatusCode::unavailable);
  EXPECT_NE(taken.status().message().find(listener->local_address()), std::string::npos);
  EXPECT_EQ(Listener::listen(loop_.executor(), "nowhere", 0, {}, {}).status().code(),
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

TEST_F(ConnectorTest, connects_to_an_address_and_to_a_name) {
  const auto listener = listen();
  EXPECT_TRUE(connect("127.0.0.1", listener->port()).ok());
  EXPECT_TRUE(connect("localhost", listener->port()).ok());
  EXPECT_TRUE(loop_.run_until([&] { return accepted_.size() == 2; }));
}

TEST_F(ConnectorTest, names_the_place_where_nobody_listens) {
  auto listener = listen();
  const std::uint16_t port = listener->port();
  listener.reset();
  loop_.run_ready();
  const auto result = connect("127.0.0.1", port);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::unavailable);
  EXPECT_NE(result.status().message().find("127.0.0.1:" + std::to_string(port)), std::string::npos);
}

TEST_F(ConnectorTest, gives_up_at_its_deadline) {
  // The kernel lets connections to a full backlog wait.
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
  EXPECT_NE(result.status().message().find("50 ms"), std::string::npos);
}

TEST_F(ConnectorTest, tries_again_with_growing_pauses_until_somebody_listens) {
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
  connector.connect_with_retry(
      [&](Stream) { ++connected; },
      [&](const Status&, Duration pause) {
        pauses.push_back(pause);
        if (pauses.size() != 4) return;
        listener =
            Listener::listen(loop_.executor(), "127.0.0.1", port, {}, [](Stream, ConnectionSlot) {
            }).value();
      });
  ASSERT_TRUE(loop_.run_until([&] { return connected == 1; }));
  EXPECT_EQ(pauses, (std::vector<Duration>{1ms, 2ms, 4ms, 4ms}));
}

TEST_F(ConnectorTest, may_be_destroyed_in_its_callback_and_while_it_connects) {
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
