// HTTP handlers that form a chain: each serves its own paths, or checks a request, and passes other
// requests to the next handler. Types of one strand, as the HttpServer that they handle for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/loop/event_loop.h"
#include "frontend/loop/event_sink.h"
#include "frontend/observe/metrics.h"
#include "gpulet/base/bytes.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/gate.h"
#include "gpulet/net/http/server.h"
#include "gpulet/observe/trace.h"

namespace gpulet::frontend {

inline constexpr std::string_view kTracePath = "/gpulet/trace";

// The target without its query.
[[nodiscard]] std::string_view path_of(const net::http::HttpRequest& request);
// Whether the method is GET or HEAD.
[[nodiscard]] bool reads(const net::http::HttpRequest& head);
// Adds the Retry-After header of a response with status 429.
void add_retry_after(net::http::HttpResponse& response, Duration after);

// A handler that passes to the next handler what it does not override.
class ChainedHandler : public net::http::RequestHandler {
 public:
  explicit ChainedHandler(std::unique_ptr<net::http::RequestHandler> next)
      : next_(std::move(next)) {}

  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override {
    return next_->refuse(head);
  }
  [[nodiscard]] BodyBound body_bound(const net::http::HttpRequest& head) override {
    return next_->body_bound(head);
  }
  [[nodiscard]] bool may_use_reserve(const net::http::HttpRequest& head) override {
    return next_->may_use_reserve(head);
  }
  void on_request(net::http::HttpRequest request,
                  std::unique_ptr<net::http::Exchange> exchange) override {
    next_->on_request(std::move(request), std::move(exchange));
  }
  [[nodiscard]] net::http::HttpResponse error(unsigned status,
                                              const std::string& message) override {
    return next_->error(status, message);
  }

 private:
  std::unique_ptr<net::http::RequestHandler> next_;
};

// Checks the tokens of requests and records administrative calls (docs/security.md).
class TokenHandler final : public ChainedHandler {
 public:
  // The right that a request requires.
  using NeedsOf = net::CallNeeds (*)(const net::http::HttpRequest& head);

  // `gate` must outlive this object.
  TokenHandler(net::Gate& gate, NeedsOf needs_of, std::unique_ptr<net::http::RequestHandler> next);

  // Refuses with 401, 403 or 429, before the body is read.
  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override;
  void on_request(net::http::HttpRequest request,
                  std::unique_ptr<net::http::Exchange> exchange) override;

 private:
  [[nodiscard]] net::http::HttpResponse refusal(const net::Admission& refused, net::Right needed);

  net::Gate& gate_;
  const NeedsOf needs_of_;
};

// For the port of the Open Inference Protocol and traces.
[[nodiscard]] net::CallNeeds needs_of_protocol(const net::http::HttpRequest& head);
// For the port of metrics and the dashboard.
[[nodiscard]] net::CallNeeds needs_of_metrics(const net::http::HttpRequest& head);

// GET /metrics. The last handler of its chain.
class MetricsHandler final : public net::http::RequestHandler {
 public:
  // `metrics` must outlive this object.
  explicit MetricsHandler(MetricsSource& metrics) : metrics_(metrics) {}

  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override;
  void on_request(net::http::HttpRequest request,
                  std::unique_ptr<net::http::Exchange> exchange) override;
  [[nodiscard]] net::http::HttpResponse error(unsigned status, const std::string& message) override;

 private:
  MetricsSource& metrics_;
};

// The last traced requests. One thread at a time; any thread may use the result of since().
class TraceLog {
 public:
  // A record takes about 300 bytes. The oldest chunks are dropped beyond this limit.
  static constexpr std::size_t kMaxRecords = 100'000;
  static constexpr std::size_t kRecordsPerChunk = 512;

  void add(observe::RequestTraceRecord record);
  // A mark for since(): only records added later count.
  [[nodiscard]] std::uint64_t mark();
  // The kept records that were added since the mark; 0: all kept records.
  [[nodiscard]] observe::TraceRecords since(std::uint64_t mark);

 private:
  void end_chunk();

  std::deque<observe::TraceChunk> chunks_;
  std::vector<observe::RequestTraceRecord> open_;  // the newest chunk
  std::size_t kept_ = 0;                           // records in chunks_
  std::uint64_t added_ = 0;                        // records ever added to chunks_
};

// GET /gpulet/trace?seconds=S&format=chrome|log|applications (docs/tracing.md).
//
// One trace runs at a time; further requests are refused with 429 and a Retry-After header. The
// document is written piece by piece on another thread, as fast as the client reads it, so that it
// neither blocks the event loop nor is in memory as a whole. The io_context must have stopped
// before this object is destroyed.
class TraceHandler final : public ChainedHandler {
 public:
  class Source {
   public:
    // Traces all requests of the next `length` (zero: none) and returns the mark for since().
    virtual std::uint64_t begin(Duration length) = 0;
    [[nodiscard]] virtual observe::TraceRecords since(std::uint64_t mark) = 0;

   protected:
    ~Source() = default;
  };
  // The time limit for sending a document.
  static constexpr Duration kSendTimeout = std::chrono::minutes(2);

  // `source` must outlive this object.
  TraceHandler(net::asio::io_context& io, Source& source,
               std::unique_ptr<net::http::RequestHandler> next);
  ~TraceHandler() override;

  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override;
  void on_request(net::http::HttpRequest request,
                  std::unique_ptr<net::http::Exchange> exchange) override;

  // Ends the current trace and refuses new ones, because the frontend stops.
  void stop();

 private:
  struct Run;
  using RunPointer = std::shared_ptr<Run>;

  [[nodiscard]] net::http::HttpResponse busy();
  void send_records(const RunPointer& run);
  void send_piece(const RunPointer& run);
  void end(const RunPointer& run);

  net::asio::io_context& io_;
  Source& source_;
  RunPointer run_;  // the current trace; null: none
  bool stopped_ = false;
  BackgroundThread background_;
};

// Traces of the engine: has it trace requests, and takes them from the log. Both must outlive it.
class EngineTraces final : public TraceHandler::Source {
 public:
  EngineTraces(EventSink& events, TraceLog& log) : events_(events), log_(log) {}

  // Zero: the sampled requests.
  std::uint64_t begin(Duration length) override;
  [[nodiscard]] observe::TraceRecords since(std::uint64_t mark) override {
    return log_.since(mark);
  }

 private:
  EventSink& events_;
  TraceLog& log_;
};

}  // namespace gpulet::frontend
