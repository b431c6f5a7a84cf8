#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/net/listener.h"
#include "tests/net/loop.h"

namespace gpulet::net {
namespace {

using namespace std::chrono_literals;

// A listener that records the peers that showed a secret.
class LocalListenerTest : public ::testing::Test {
 protected:
  void listen(LocalListenerOptions options = {}) {
    auto opened = LocalListener::listen(loop_.executor(), std::move(options),
                                        [this](const std::string& secret, StreamSocket socket) {
                                          secrets_.push_back(secret);
                                          sockets_.push_back(std::move(socket));
                                        });
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    listener_ = std::move(opened).value();
  }
  [[nodiscard]] Result<StreamSocket> join(const std::string& secret,
                                          std::uint32_t user = LocalListener::user()) {
    return open_local(loop_.executor(), listener_->name(), user, secret);
  }
  // A peer that is connected and has said nothing.
  [[nodiscard]] asio::local::stream_protocol::socket connect_silently() {
    asio::local::stream_protocol::socket socket(loop_.context());
    socket.connect({std::string(1, '\0') + listener_->name()});
    socket.non_blocking(true);
    return socket;
  }
  template <typename Socket>
  [[nodiscard]] bool is_closed(Socket& socket) {
    char byte = 0;
    boost::system::error_code error;
    socket.receive(asio::buffer(&byte, 1), 0, error);
    return error && error != asio::error::would_block;
  }

  testing::Loop loop_;
  std::unique_ptr<LocalListener> listener_;
  std::vector<std::string> secrets_;
  std::vector<StreamSocket> sockets_;
};

TEST_F(LocalListenerTest, HandsOnAPeerWithItsSecret) {
  listen();
  const std::string secret = draw_local_secret();
  auto joined = join(secret);
  ASSERT_TRUE(joined.ok()) << joined.status().to_string();
  const std::string more = "what follows";
  joined.value().send(asio::buffer(more));
  ASSERT_TRUE(loop_.run_until([&] { return !secrets_.empty(); }));
  EXPECT_EQ(secrets_.front(), secret);
  std::string received(more.size(), '\0');
  sockets_.front().receive(asio::buffer(received));
  EXPECT_EQ(received, more);
}

TEST_F(LocalListenerTest, NamesAndSecretsDiffer) {
  listen();
  const std::string first = listener_->name();
  listen();
  EXPECT_NE(listener_->name(), first);
  EXPECT_EQ(draw_local_secret().size(), kLocalSecretBytes);
  EXPECT_NE(draw_local_secret(), draw_local_secret());
}

TEST_F(LocalListenerTest, ClosesAPeerOfAnotherUserUnheard) {
  listen({.admits = [](std::uint32_t) { return false; }});
  auto joined = join(draw_local_secret());
  ASSERT_TRUE(joined.ok());
  ASSERT_TRUE(loop_.run_until([&] { return is_closed(joined.value()); }));
  EXPECT_TRUE(secrets_.empty());
}

TEST_F(LocalListenerTest, APeerDoesNotOpenTheSocketOfAnotherUser) {
  listen();
  const auto joined = join(draw_local_secret(), LocalListener::user() + 1);
  EXPECT_EQ(joined.status().code(), StatusCode::unauthenticated);
}

TEST_F(LocalListenerTest, APeerFailsWhereThereIsNoSocket) {
  listen();
  const std::string secret = draw_local_secret();
  const std::uint32_t user = LocalListener::user();
  EXPECT_EQ(join("short").status().code(), StatusCode::invalid);
  for (const std::string& name : {std::string(), std::string(101, 'x')}) {
    EXPECT_EQ(open_local(loop_.executor(), name, user, secret).status().code(),
              StatusCode::invalid);
  }
  const std::string gone = listener_->name();
  listener_.reset();
  EXPECT_EQ(open_local(loop_.executor(), gone, user, secret).status().code(),
            StatusCode::unavailable);
}

TEST_F(LocalListenerTest, ClosesPeersWithoutASecretInTime) {
  listen({.secret_within = 50ms});
  auto silent = connect_silently();
  auto begun = connect_silently();
  begun.send(asio::buffer(std::string(kLocalSecretBytes - 1, 'a')));
  ASSERT_TRUE(loop_.run_until([&] { return is_closed(silent) && is_closed(begun); }));
  EXPECT_TRUE(secrets_.empty());
}

TEST_F(LocalListenerTest, HoldsABoundedNumberOfSilentPeers) {
  listen({.secret_within = 60s, .most_silent = 2});
  auto oldest = connect_silently();
  auto second = connect_silently();
  auto third = connect_silently();
  ASSERT_TRUE(loop_.run_until([&] { return is_closed(oldest); }));
  EXPECT_FALSE(is_closed(second));
  EXPECT_FALSE(is_closed(third));
}

TEST_F(LocalListenerTest, ADestroyedListenerClosesItsSilentPeers) {
  listen();
  auto silent = connect_silently();
  loop_.run_ready();
  listener_.reset();
  ASSERT_TRUE(loop_.run_until([&] { return is_closed(silent); }));
}

class DescriptorTest : public ::testing::Test {
 protected:
  DescriptorTest() {
    asio::local::stream_protocol::socket one(loop_.context());
    asio::local::stream_protocol::socket two(loop_.context());
    asio::local::connect_pair(one, two);
    here_ = std::move(one);
    there_ = std::move(two);
  }

  testing::Loop loop_;
  StreamSocket here_{loop_.context()};
  StreamSocket there_{loop_.context()};
};

TEST_F(DescriptorTest, TravelsWithOneByte) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const FileDescriptor read_end(ends[0]);
  const FileDescriptor write_end(ends[1]);
  ASSERT_TRUE(send_descriptor(here_, read_end.get()));
  here_.send(asio::buffer("x", 1));
  const auto received = receive_descriptor(there_);
  ASSERT_TRUE(received.ok()) << received.status().to_string();
  struct stat sent {};
  struct stat got {};
  ASSERT_EQ(::fstat(read_end.get(), &sent), 0);
  ASSERT_EQ(::fstat(received.value().get(), &got), 0);
  EXPECT_EQ(sent.st_ino, got.st_ino);
  char next = 0;
  there_.receive(asio::buffer(&next, 1));
  EXPECT_EQ(next, 'x') << "only one byte was taken";
}

TEST_F(DescriptorTest, MayBeNone) {
  ASSERT_TRUE(send_descriptor(here_, -1));
  const auto received = receive_descriptor(there_);
  ASSERT_TRUE(received.ok());
  EXPECT_FALSE(received.value().valid());
}

TEST_F(DescriptorTest, FailsWhereNothingCame) {
  EXPECT_EQ(receive_descriptor(there_).status().code(), StatusCode::unavailable);
  here_.close();
  EXPECT_EQ(receive_descriptor(there_).status().code(), StatusCode::unavailable);
  EXPECT_FALSE(send_descriptor(there_, -1));
}

TEST_F(DescriptorTest, ASecondDescriptorIsRefused) {
  iovec text{};
  char byte = 0;
  text = {&byte, 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const std::array<int, 2> both{STDIN_FILENO, STDOUT_FILENO};
  std::memcpy(CMSG_DATA(rights), both.data(), sizeof both);
  ASSERT_EQ(::sendmsg(here_.native_handle(), &message, 0), 1);
  EXPECT_FALSE(receive_descriptor(there_).ok());
}

}  // namespace
}  // namespace gpulet::net
