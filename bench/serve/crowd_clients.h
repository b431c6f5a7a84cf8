// The clients of bench_serve_crowd: HTTP connections that are active, idle, or slow in one of two
// ways. All on one io_context and one thread; they live as long as it runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/serve/support/site.h"
#include "gpulet/net/asio.h"

namespace gpulet::bench {

struct CrowdTarget {
  std::uint16_t port = 0;
  std::string request;  // whole, of one inference
};

// A whole inference of a model with one input of bytes, and what length its answer at the front of
// `text` has, headers and body; 0: not known yet.
[[nodiscard]] std::string infer_request(const SiteModel& model);
[[nodiscard]] std::size_t length_of_answer(const std::string& text);

// Opens a connection, and throws where it cannot.
[[nodiscard]] net::asio::ip::tcp::socket connect_to(net::asio::io_context& io, std::uint16_t port);

// Sends a request a second, from its place among `count` on, and notes how long each answer took,
// counted from the moment it was due.
class ActiveClient {
 public:
  struct Books {
    std::vector<double> latencies_ms;
    std::uint64_t sent = 0;
    std::uint64_t answered = 0;
    std::uint64_t failed = 0;   // not 200, or the connection was lost
    std::string first_failure;  // an answer, or what happened to the connection
  };

  ActiveClient(net::asio::io_context& io, const CrowdTarget& target, Books*& books);
  // The first one goes after `delay`.
  void start(std::chrono::nanoseconds delay);

 private:
  void send();
  void read();
  void wait();
  void fail(const std::string& why);

  net::asio::ip::tcp::socket socket_;
  net::asio::steady_timer timer_;
  const CrowdTarget& target_;
  Books*& books_;  // of the moment: changes with the phase
  std::chrono::steady_clock::time_point due_;
  std::string answer_;
};

// Sends a byte of its request, or reads a little of what it asked for much of, ten times a second.
// Begins anew where it is cut off.
class SlowClient {
 public:
  enum class Kind : std::uint8_t { writer, reader };
  SlowClient(net::asio::io_context& io, const CrowdTarget& target, Kind kind);
  void start();

 private:
  void begin();
  void step();
  void go_on();

  net::asio::io_context& io_;
  net::asio::steady_timer timer_;
  const CrowdTarget& target_;
  Kind kind_;
  std::unique_ptr<net::asio::ip::tcp::socket> socket_;
  std::size_t written_ = 0;
};

}  // namespace gpulet::bench
