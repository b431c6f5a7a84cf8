// HttpCrowd: many HTTP connections that send one inference after another at a rate that is theirs
// together, with books for each connection. Arrivals are Poisson; a connection has one request
// under way, and one that is due meanwhile goes as soon as that is answered, counted from then. All
// on one io_context and one thread; it lives as long as that runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/serve/crowd_clients.h"
#include "gpulet/base/time.h"

namespace gpulet::bench {

struct CrowdAnswer {
  Duration due{};  // since the crowd's start; later where its connection was not free
  Duration took{};
  std::uint32_t connection = 0;
  std::uint32_t status = 0;  // of HTTP; 0: the connection was lost
};

class HttpCrowd {
 public:
  // REQUIRES: connections > 0. Throws where one cannot be opened.
  HttpCrowd(net::asio::io_context& io, const CrowdTarget& target, std::uint32_t connections,
            std::uint64_t seed);
  ~HttpCrowd();
  HttpCrowd(const HttpCrowd&) = delete;
  HttpCrowd& operator=(const HttpCrowd&) = delete;

  // Requests per second of all connections together from now on; 0: none. Closed: every connection
  // sends the next one as soon as it has its answer, as wrk does.
  void set_rate(double per_second);
  void set_closed();

  [[nodiscard]] Duration elapsed() const;
  [[nodiscard]] const std::vector<CrowdAnswer>& answers() const;
  [[nodiscard]] std::uint64_t reconnected() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::bench
