// A closed-loop load driver for TCP servers: N connections with D requests in flight each, divided
// over threads. An Exchange defines the format of requests and replies, so one driver measures echo
// servers and frontends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "bench/net/record.h"
#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"

namespace gpulet::bench {

// Any thread.
class Exchange {
 public:
  struct Request {
    std::string head;
    Bytes payload;  // follows it
  };
  struct Reply {
    std::uint32_t slot = 0;  // of the request
    std::size_t bytes = 0;   // of the whole reply; missing bytes are skipped
    bool ok = true;
  };

  virtual ~Exchange() = default;

  // A request with a slot below the depth, which its reply repeats.
  [[nodiscard]] virtual Request request(std::uint32_t slot) const = 0;
  // The reply at the front of `bytes`; empty if more bytes are needed. Fails on invalid bytes.
  [[nodiscard]] virtual Result<std::optional<Reply>> reply(
      std::span<const std::byte> bytes) const = 0;
};

struct DriveOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::uint32_t connections = 1;
  std::uint32_t depth = 1;
  std::uint32_t threads = 1;  // at most one per connection is used
  std::string authority;      // file with the authority of the server's certificate; empty: no TLS
  Duration warm_up = std::chrono::seconds(1);  // not measured
  Duration duration = std::chrono::seconds(5);
};

// Calls `on_result` while the connections are still open. Fails if a connection cannot be opened or
// is lost, or on an invalid reply. The first part of the connections runs in the calling thread.
[[nodiscard]] Status drive(const DriveOptions& options, const Exchange& exchange,
                           const std::function<void(const DriveResult&)>& on_result);

}  // namespace gpulet::bench
