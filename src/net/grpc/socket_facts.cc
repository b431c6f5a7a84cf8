#include "socket_facts.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace gpulet::net::grpc_api {
namespace {

// The socket itself, by another descriptor: whoever holds the first may close it at any time, and
// its number may then be another's.
class Held {
 public:
  Held(int descriptor, std::uint64_t cookie) : own_(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {
    right_ = own_ >= 0 && cookie_of(own_) == cookie;
  }
  ~Held() {
    if (own_ >= 0) ::close(own_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  [[nodiscard]] bool right() const { return right_; }
  [[nodiscard]] int descriptor() const { return own_; }

 private:
  int own_;
  bool right_ = false;
};

}  // namespace

std::optional<std::uint64_t> cookie_of(int descriptor) {
  std::uint64_t cookie = 0;
  socklen_t bytes = sizeof(cookie);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) != 0) return std::nullopt;
  return cookie;
}

std::optional<Traffic> traffic_of(int descriptor, std::uint64_t cookie) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return std::nullopt;
  if (cookie_of(descriptor) != cookie) return std::nullopt;
  return Traffic{.any_received = info.tcpi_bytes_received > 0,
                 .since_last = std::chrono::milliseconds(
                     std::min(info.tcpi_last_data_recv, info.tcpi_last_data_sent))};
}

void end_connection(int descriptor, std::uint64_t cookie) {
  const Held socket(descriptor, cookie);
  if (socket.right()) ::shutdown(socket.descriptor(), SHUT_RDWR);
}

}  // namespace gpulet::net::grpc_api
