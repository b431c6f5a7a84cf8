#include "net/grpc/socket_facts.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "gpulet/base/file_descriptor.h"

namespace gpulet::net::grpc_api {
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
  // A duplicate, because the owner may close the descriptor at any time.
  const FileDescriptor socket(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (socket.valid() && cookie_of(socket.get()) == cookie) ::shutdown(socket.get(), SHUT_RDWR);
}

}  // namespace gpulet::net::grpc_api
