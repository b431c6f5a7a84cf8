// The endpoints of metrics and of traces, and the log of traced requests. Types of one strand, as
// the HttpServer that they serve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/endpoints/endpoint.h"
#include "frontend/loop/event_loop.h"
#include "frontend/loop/event_sink.h"
#include "frontend/observe/metrics.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/http/server.h"
#include "gpulet/observe/trace.h"

namespace gpulet::frontend {

inline constexpr std::string_view kTracePath = "/gpulet/trace";

// How the port of metrics and the dashboard writes an error.
[[nodiscard]] net::http::HttpResponse metrics_error(unsigned status, const std::string& message);

// GET /metrics. Refuses every other request, so it is the last service of its port.
class MetricsHandler final : public EndpointService {
 public:
  // `metrics` must outlive this object.
  explicit MetricsHandler(MetricsSource& metrics);

  [[nodiscard]] std::span<const EndpointRow> rows() const override { return rows_; }

 private:
  [[nodiscard]] std::optional<net::http::HttpResponse> refuse_writing(
      const EndpointRoute& route, const net::http::HttpRequest& head);
  [[nodiscard]] std::optional<net::http::HttpResponse> refuse_unknown(
      const EndpointRoute& route, const net::http::HttpRequest& head);
  void page(EndpointCall call);

  MetricsSource& metrics_;
  const std::vector<EndpointRow> rows_;
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
class TraceHandler final : public EndpointService {
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
  TraceHandler(net::asio::io_context& io, Source& source, ErrorFormat format);
  ~TraceHandler() override;

  [[nodiscard]] std::span<const EndpointRow> rows() const override { return rows_; }

  // Ends the current trace and refuses new ones, because the frontend stops.
  void stop();

 private:
  struct Run;
  using RunPointer = std::shared_ptr<Run>;

  [[nodiscard]] std::optional<net::http::HttpResponse> refuse_trace(
      const EndpointRoute& route, const net::http::HttpRequest& head);
  void trace(EndpointCall call);
  [[nodiscard]] net::http::HttpResponse busy();
  void send_records(const RunPointer& run);
  void send_piece(const RunPointer& run);
  void end(const RunPointer& run);

  const std::vector<EndpointRow> rows_;
  net::asio::io_context& io_;
  Source& source_;
  const ErrorFormat format_;
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
