#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/read.hpp>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <random>
#include <utility>

#include "gpulet/net/listener.h"

namespace gpulet::net {
namespace {

using boost::system::error_code;
using Local = asio::local::stream_protocol;

constexpr std::size_t kMostNameBytes = 100;  // of a socket's address
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

std::string draw_hex(std::size_t digits) {
  constexpr std::size_t kDigitsOfNumber = 8;
  std::random_device device;
  std::string text;
  while (text.size() < digits) text += fmt::format("{:0{}x}", device(), kDigitsOfNumber);
  text.resize(digits);
  return text;
}

// The address of an abstract socket begins with a zero byte.
Local::endpoint abstract(const std::string& name) { return {std::string(1, '\0') + name}; }

// The user of the process at the other end: that which connected, or that which listened.
std::optional<std::uint32_t> user_of_peer(Local::socket& socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return std::nullopt;
  return credentials.uid;
}

// A batch with its inputs should fit: Unix sockets do not grow by themselves, as TCP's do. The
// system may allow less.
void widen(Local::socket& socket) {
  constexpr int kSendBytes = 4 << 20;
  error_code ignored;
  socket.set_option(asio::socket_base::send_buffer_size(kSendBytes), ignored);
}

bool is_own_user_or_root(std::uint32_t user) { return user == 0 || user == ::geteuid(); }

}  // namespace

std::string draw_local_secret() { return draw_hex(kLocalSecretBytes); }

class LocalListener::Impl : public std::enable_shared_from_this<LocalListener::Impl> {
 public:
  Impl(const asio::any_io_executor& executor, LocalListenerOptions options, OnPeer on_peer)
      : executor_(executor),
        acceptor_(executor),
        pause_(executor),
        options_(std::move(options)),
        on_peer_(std::move(on_peer)),
        name_("gpulet-" + draw_hex(kNameDigits)) {
    if (!options_.admits) options_.admits = is_own_user_or_root;
  }

  [[nodiscard]] Status open() {
    error_code error;
    acceptor_.open(Local(), error);
    if (!error) acceptor_.bind(abstract(name_), error);
    if (!error) acceptor_.listen(kBacklog, error);
    if (!error) return {};
    return {StatusCode::unavailable, "cannot listen on a Unix socket: " + error.message()};
  }

  void accept() {
    acceptor_.async_accept(
        [self = shared_from_this()](const error_code& error, Local::socket socket) {
          self->on_accepted(error, std::move(socket));
        });
  }

  void close() {
    closed_ = true;
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    for (const std::shared_ptr<Silent>& peer : silent_) peer->close();
    silent_.clear();
  }

  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  static constexpr std::size_t kNameDigits = 32;
  static constexpr int kBacklog = 64;

  // A peer whose secret is being read. The operations in flight share it.
  struct Silent {
    Silent(Local::socket accepted, const asio::any_io_executor& executor)
        : socket(std::move(accepted)), deadline(executor), secret(kLocalSecretBytes, '\0') {}

    void close() {
      error_code ignored;
      socket.close(ignored);
      deadline.cancel();
    }

    Local::socket socket;
    asio::steady_timer deadline;
    std::string secret;
  };

  void on_accepted(const error_code& error, Local::socket socket) {
    if (closed_) return;
    if (error) return accept_later();
    const std::optional<std::uint32_t> user = user_of_peer(socket);
    if (user && options_.admits(*user)) read_secret(std::move(socket));
    accept();
  }

  // Without free descriptors every accept fails at once.
  void accept_later() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error && !self->closed_) self->accept();
    });
  }

  void read_secret(Local::socket socket) {
    if (silent_.size() >= options_.most_silent) forget(silent_.front());
    widen(socket);
    const auto peer = std::make_shared<Silent>(std::move(socket), executor_);
    silent_.push_back(peer);
    peer->deadline.expires_after(options_.secret_within);
    peer->deadline.async_wait([self = shared_from_this(), peer](const error_code& error) {
      if (!error) self->forget(peer);
    });
    asio::async_read(peer->socket, asio::buffer(peer->secret),
                     [self = shared_from_this(), peer](const error_code& error, std::size_t) {
                       self->on_secret(error, peer);
                     });
  }

  void on_secret(const error_code& error, const std::shared_ptr<Silent>& peer) {
    if (error || closed_) return forget(peer);
    peer->deadline.cancel();
    std::erase(silent_, peer);
    on_peer_(peer->secret, StreamSocket(std::move(peer->socket)));
  }

  // The argument may be an element of the list.
  void forget(const std::shared_ptr<Silent>& peer) {
    peer->close();
    silent_.remove_if([gone = peer.get()](const auto& one) { return one.get() == gone; });
  }

  asio::any_io_executor executor_;
  Local::acceptor acceptor_;
  asio::steady_timer pause_;
  LocalListenerOptions options_;
  OnPeer on_peer_;
  const std::string name_;
  std::list<std::shared_ptr<Silent>> silent_;  // oldest first
  bool closed_ = false;
};

Result<std::unique_ptr<LocalListener>> LocalListener::listen(const asio::any_io_executor& executor,
                                                             LocalListenerOptions options,
                                                             OnPeer on_peer) {
  auto impl = std::make_shared<Impl>(executor, std::move(options), std::move(on_peer));
  if (Status opened = impl->open(); !opened.ok()) return opened;
  impl->accept();
  return std::unique_ptr<LocalListener>(new LocalListener(std::move(impl)));
}

LocalListener::LocalListener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalListener::~LocalListener() { impl_->close(); }

const std::string& LocalListener::name() const { return impl_->name(); }
std::uint32_t LocalListener::user() { return ::geteuid(); }

Result<StreamSocket> open_local(const asio::any_io_executor& executor, const std::string& name,
                                std::uint32_t user, const std::string& secret) {
  const auto failure = [&](StatusCode code, const std::string& why) {
    return Status(code, fmt::format("cannot use the Unix socket {}: {}", name, why));
  };
  if (secret.size() != kLocalSecretBytes)
    return failure(StatusCode::invalid, "its secret has the wrong length");
  if (name.empty() || name.size() > kMostNameBytes)
    return failure(StatusCode::invalid, "its name has no valid length");
  Local::socket socket(executor);
  error_code error;
  socket.open(Local(), error);
  if (!error) socket.non_blocking(true, error);  // so that a full backlog fails at once
  if (error) return failure(StatusCode::unavailable, error.message());
  const Local::endpoint address = abstract(name);
  if (::connect(socket.native_handle(), address.data(), static_cast<socklen_t>(address.size())) !=
      0)
    return failure(StatusCode::unavailable, std::strerror(errno));
  if (user_of_peer(socket) != user)
    return failure(StatusCode::unauthenticated, "it belongs to another user");
  widen(socket);
  if (socket.send(asio::buffer(secret), 0, error) != secret.size())
    return failure(StatusCode::unavailable, error.message());
  return StreamSocket(std::move(socket));
}

// ---- descriptors

namespace {

// A message of one byte, with room for one descriptor.
class OneByte {
 public:
  OneByte() {
    message_.msg_iov = &text_;
    message_.msg_iovlen = 1;
  }
  OneByte(const OneByte&) = delete;
  OneByte& operator=(const OneByte&) = delete;

  void attach(int descriptor) {
    message_.msg_control = control_.data();
    message_.msg_controllen = control_.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&message_);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  [[nodiscard]] bool send(int socket) {
    return ::sendmsg(socket, &message_, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
  }

  // Without the padding of CMSG_SPACE, which would have room for a second one.
  [[nodiscard]] ssize_t receive(int socket) {
    message_.msg_control = control_.data();
    message_.msg_controllen = CMSG_LEN(sizeof(int));
    return ::recvmsg(socket, &message_, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  }
  // The kernel has closed those for which there was no room.
  [[nodiscard]] bool cut() const { return (message_.msg_flags & MSG_CTRUNC) != 0; }
  [[nodiscard]] FileDescriptor take() {
    cmsghdr* const rights = CMSG_FIRSTHDR(&message_);
    if (rights == nullptr || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS ||
        rights->cmsg_len < CMSG_LEN(sizeof(int)))
      return {};
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    return FileDescriptor(descriptor);
  }

 private:
  char byte_ = 0;
  iovec text_{&byte_, 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control_{};
  msghdr message_{};
};

}  // namespace

bool send_descriptor(StreamSocket& socket, int descriptor) {
  OneByte message;
  if (descriptor >= 0) message.attach(descriptor);
  return message.send(socket.native_handle());
}

Result<FileDescriptor> receive_descriptor(StreamSocket& socket) {
  OneByte message;
  const ssize_t bytes = message.receive(socket.native_handle());
  if (bytes < 0)
    return Status(StatusCode::unavailable, std::string("no descriptor: ") + std::strerror(errno));
  FileDescriptor descriptor = message.take();
  if (bytes == 0) return Status(StatusCode::unavailable, "no descriptor: the peer is gone");
  if (message.cut()) return Status(StatusCode::malformed, "more than one descriptor came");
  return descriptor;
}

}  // namespace gpulet::net
