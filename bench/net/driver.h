// A closed-loop load driver for servers that answer requests over TCP: N connections with D
// requests in flight each, as many as the server takes. What a request and a reply look like is an
// Exchange, so that the same driver measures a bare echo and a frontend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bench/net/record.h"
#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"

namespace gpulet::bench {

class Exchange {
 public:
  struct Request {
    std::string head;
    Bytes payload;  // follows it
  };
  struct Reply {
    std::uint32_t slot = 0;  // of the request that it answers
    std::size_t bytes = 0;   // all of it; those that are not here yet are skipped
    bool ok = true;
  };

  virtual ~Exchange() = default;

  // A request that carries the slot, a number below the depth, so that its reply can tell it.
  [[nodiscard]] virtual Request request(std::uint32_t slot) = 0;
  // The reply that starts at the front of `bytes`; nothing while too little of it is here to tell.
  // Fails where no reply starts like this.
  [[nodiscard]] virtual Result<std::optional<Reply>> reply(std::span<const std::byte> bytes) = 0;
};

struct DriveOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::uint32_t connections = 1;
  std::uint32_t depth = 1;
  Duration warm_up = std::chrono::seconds(1);  // not measured
  Duration duration = std::chrono::seconds(5);
};

// Runs in the calling thread. Fails where it cannot connect, a connection is lost, or a reply makes
// no sense.
[[nodiscard]] Result<DriveResult> drive(const DriveOptions& options, Exchange& exchange);

}  // namespace gpulet::bench
