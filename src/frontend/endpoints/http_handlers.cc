#include "frontend/endpoints/http_handlers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "frontend/loop/wall_clock.h"
#include "gpulet/base/text.h"

namespace gpulet::frontend {

namespace http = net::http;

// ---- MetricsHandler

http::HttpResponse metrics_error(unsigned status, const std::string& message) {
  return http::text_response(status, "text/plain; charset=utf-8", message + "\n");
}

MetricsHandler::MetricsHandler(MetricsSource& metrics)
    : metrics_(metrics),
      rows_{{.pattern = "/metrics",
             .right = access::Right::observe,
             .action = "observe",
             .handle = handle(&MetricsHandler::page),
             .refuse = refuse(&MetricsHandler::refuse_writing)},
            {.pattern = "*",
             .right = access::Right::observe,
             .action = "observe",
             .refuse = refuse(&MetricsHandler::refuse_unknown)}} {}

std::optional<http::HttpResponse> MetricsHandler::refuse_writing(const EndpointRoute& /*route*/,
                                                                 const http::HttpRequest& head) {
  if (!reads(head)) return metrics_error(405, "use GET");
  return std::nullopt;
}

std::optional<http::HttpResponse> MetricsHandler::refuse_unknown(
    const EndpointRoute& /*route*/, const http::HttpRequest& /*head*/) {
  return metrics_error(404, "not found; metrics are at /metrics");
}

void MetricsHandler::page(EndpointCall call) {
  metrics_.metrics([waiting = std::shared_ptr(std::move(call.exchange))](const Bytes& page) {
    http::HttpResponse response = http::text_response(200, kMetricsContentType, "");
    response.body = {page};
    waiting->answer(std::move(response));
  });
}

// ---- TraceHandler

// Members of TraceHandler::Run.
namespace tracing {

using Text = std::unique_ptr<observe::TraceDocument>;

struct TraceFormat {
  std::string_view name;
  std::string_view content_type;
  Text (*write)(observe::TraceRecords, const observe::WallClock&);
};

struct TraceQuery {
  Duration length{};
  const TraceFormat* format = nullptr;
};

}  // namespace tracing

namespace {

using net::asio::steady_timer;

constexpr double kMaxTraceSeconds = 600;
constexpr unsigned kOneTraceAtATime = 429;
constexpr unsigned kUnavailable = 503;

// The value of a parameter in the query; empty if it is absent.
std::string_view query_value(const http::HttpRequest& request, std::string_view name) {
  std::string_view rest = request.target;
  const std::size_t begin = rest.find('?');
  if (begin == std::string_view::npos) return {};
  rest.remove_prefix(begin + 1);
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const std::size_t equals = one.find('=');
    if (equals != std::string_view::npos && one.substr(0, equals) == name)
      return one.substr(equals + 1);
  }
  return {};
}

using tracing::TraceFormat;
using tracing::TraceQuery;

constexpr std::array kFormats{
    TraceFormat{"chrome", "application/json",
                [](observe::TraceRecords records, const observe::WallClock&) {
                  return observe::chrome_trace(std::move(records));
                }},
    TraceFormat{"log", "text/csv", observe::model_log},
    TraceFormat{"applications", "text/csv", observe::application_log},
};

Result<TraceQuery> read_query(const http::HttpRequest& request) {
  TraceQuery query;
  const std::string_view seconds = query_value(request, "seconds");
  double length_s = 0;
  if (!seconds.empty()) {
    length_s = parse_number<double>(seconds).value_or(-1);
    if (!(length_s >= 0 && length_s <= kMaxTraceSeconds)) {
      return Status(StatusCode::invalid,
                    "seconds must be a number from 0 to 600; was " + std::string(seconds));
    }
  }
  query.length = from_seconds(length_s);
  const std::string_view name = query_value(request, "format");
  for (const TraceFormat& format : kFormats) {
    if (name == format.name || (name.empty() && &format == kFormats.data())) query.format = &format;
  }
  if (query.format == nullptr) {
    return Status(StatusCode::invalid,
                  "format must be chrome, log or applications; was " + std::string(name));
  }
  return query;
}

}  // namespace

struct TraceHandler::Run {
  Run(net::asio::io_context& io, const TraceQuery& requested, std::uint64_t from)
      : query(requested), mark(from), timer(io) {}

  TraceQuery query;
  std::uint64_t mark;
  steady_timer timer;  // first for the length of the trace, then for sending it
  std::unique_ptr<http::Exchange> exchange;  // during the trace
  std::unique_ptr<http::ResponseStream> stream;
  // Used and destroyed on the background thread only: there may be a hundred thousand records.
  std::shared_ptr<const tracing::Text> writing;
};

TraceHandler::TraceHandler(net::asio::io_context& io, Source& source, ErrorFormat format)
    : rows_{{.pattern = kTracePath,
             .right = access::Right::admin,
             .action = "trace",
             .handle = handle(&TraceHandler::trace),
             .refuse = refuse(&TraceHandler::refuse_trace),
             .reserve = false}},
      io_(io),
      source_(source),
      format_(format),
      background_(io) {}

TraceHandler::~TraceHandler() = default;

std::optional<http::HttpResponse> TraceHandler::refuse_trace(const EndpointRoute& /*route*/,
                                                             const http::HttpRequest& head) {
  if (!reads(head)) return format_(405, "use GET");
  const auto query = read_query(head);
  if (!query.ok()) return format_(400, query.status().message());
  if (stopped_) return format_(kUnavailable, "the frontend is stopping");
  return run_ ? std::optional(busy()) : std::nullopt;
}

void TraceHandler::stop() {
  stopped_ = true;
  const RunPointer run = run_;
  if (!run) return;
  if (const auto waiting = std::exchange(run->exchange, nullptr))
    waiting->answer(format_(kUnavailable, "the frontend is stopping"));
  if (run->stream) run->stream->abort();
  end(run);
}

http::HttpResponse TraceHandler::busy() {
  const double left_s =
      std::max(0.0, to_seconds(run_->timer.expiry() - steady_timer::clock_type::now()));
  const auto seconds = static_cast<long long>(run_->exchange ? std::ceil(left_s) + 1 : 1);
  http::HttpResponse refusal =
      format_(kOneTraceAtATime,
              "another trace is in progress; try again in " + std::to_string(seconds) + " s");
  refusal.headers.push_back({"Retry-After", std::to_string(seconds)});
  return refusal;
}

void TraceHandler::trace(EndpointCall call) {
  if (run_) return call.exchange->answer(busy());
  const TraceQuery query = read_query(call.request).value();  // refuse_trace() has checked it
  if (call.request.method == "HEAD")
    return call.exchange->answer(http::text_response(200, query.format->content_type, ""));
  const auto run = std::make_shared<Run>(io_, query, source_.begin(query.length));
  run_ = run;
  run->exchange = std::move(call.exchange);
  run->exchange->on_gone([this, weak = std::weak_ptr<Run>(run)] {
    if (const RunPointer gone = weak.lock()) end(gone);
  });
  run->timer.expires_after(query.length);
  run->timer.async_wait([this, run](const boost::system::error_code& failure) {
    if (!failure && run == run_) send_records(run);
  });
}

void TraceHandler::send_records(const RunPointer& run) {
  http::HttpResponse head;
  head.headers.push_back({"Content-Type", std::string(run->query.format->content_type)});
  run->stream = std::exchange(run->exchange, nullptr)->stream(std::move(head));
  run->timer.expires_after(kSendTimeout);
  run->timer.async_wait([this, run](const boost::system::error_code& failure) {
    if (failure || run != run_) return;
    run->stream->abort();
    end(run);
  });
  run->writing =
      background_.shared(run->query.format->write(source_.since(run->mark), wall_clock()));
  send_piece(run);
}

void TraceHandler::send_piece(const RunPointer& run) {
  background_.run([writing = run->writing] { return (*writing)->next(); },
                  [this, run](std::string piece) {
                    if (run != run_) return;
                    if (piece.empty() || !run->stream->send(std::move(piece))) return end(run);
                    run->stream->on_drained([this, run] {
                      if (run == run_) send_piece(run);
                    });
                  });
}

void TraceHandler::end(const RunPointer& run) {
  if (run != run_) return;
  run_.reset();
  run->timer.cancel();
  run->exchange.reset();
  run->stream.reset();
  run->writing.reset();
}

std::uint64_t EngineTraces::begin(Duration length) {
  if (length <= Duration::zero()) return 0;
  events_.deliver(serve::TraceUntil{net::now() + length});
  return log_.mark();
}

// ---- TraceLog

void TraceLog::add(observe::RequestTraceRecord record) {
  if (open_.empty()) open_.reserve(kRecordsPerChunk);
  open_.push_back(std::move(record));
  if (open_.size() == kRecordsPerChunk) end_chunk();
}

void TraceLog::end_chunk() {
  if (open_.empty()) return;
  kept_ += open_.size();
  added_ += open_.size();
  chunks_.push_back(
      std::make_shared<const std::vector<observe::RequestTraceRecord>>(std::exchange(open_, {})));
  while (kept_ > kMaxRecords) {
    kept_ -= chunks_.front()->size();
    chunks_.pop_front();
  }
}

std::uint64_t TraceLog::mark() {
  end_chunk();
  return added_;
}

observe::TraceRecords TraceLog::since(std::uint64_t mark) {
  end_chunk();
  std::uint64_t first = added_ - kept_;  // number of the first record of a chunk
  observe::TraceRecords records;
  for (const observe::TraceChunk& chunk : chunks_) {
    if (first >= mark) records.push_back(chunk);
    first += chunk->size();
  }
  return records;
}

}  // namespace gpulet::frontend
