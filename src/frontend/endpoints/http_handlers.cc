#include "frontend/endpoints/http_handlers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "frontend/loop/done.h"
#include "frontend/loop/wall_clock.h"
#include "frontend/observe/metrics.h"
#include "gpulet/base/text.h"
#include "gpulet/net/kserve/http_api.h"

namespace gpulet::frontend {

namespace http = net::http;
using net::Right;
using net::kserve::Endpoint;

// ---- TokenHandler

namespace {

constexpr unsigned kBadRequest = 400;
constexpr unsigned kUnauthorized = 401;
constexpr unsigned kForbidden = 403;
constexpr unsigned kTooManyRequests = 429;

struct EndpointNeeds {
  Right right = Right::nothing;
  std::string_view action{};
};

EndpointNeeds needs_of(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::infer:
      return {Right::inference, "infer"};
    case Endpoint::repository_load:
      return {Right::admin, "model_load"};
    case Endpoint::repository_unload:
      return {Right::admin, "model_unload"};
    case Endpoint::shared_memory_register:
    case Endpoint::cuda_memory_register:
      return {Right::admin, "shared_memory_register"};
    case Endpoint::shared_memory_unregister:
    case Endpoint::cuda_memory_unregister:
      return {Right::admin, "shared_memory_unregister"};
    case Endpoint::change_log_settings:
      return {Right::admin, "log_settings"};
    case Endpoint::change_trace_settings:
      return {Right::admin, "trace_setting"};
    case Endpoint::model_statistics:
    case Endpoint::shared_memory_status:
    case Endpoint::cuda_memory_status:
    case Endpoint::log_settings:
    case Endpoint::trace_settings:
      return {Right::observe, "observe"};
    default:
      return {};
  }
}

Status status_of(const http::HttpResponse& response) {
  if (response.status < kBadRequest) return {};
  const StatusCode code = response.status == 404   ? StatusCode::not_found
                          : response.status == 503 ? StatusCode::unavailable
                          : response.status == 501 ? StatusCode::invalid
                          : response.status >= 500 ? StatusCode::internal
                                                   : StatusCode::invalid;
  std::string text;
  for (const Bytes& part : response.body) {
    const auto bytes = part.view();
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return {code, std::move(text)};
}

// Records the result of an administrative call in the audit log, even if the client disconnects.
class AuditedExchange final : public http::Exchange {
 public:
  AuditedExchange(std::unique_ptr<http::Exchange> exchange, net::Gate& gate, net::CallNeeds needs,
                  net::PeerIdentity peer)
      : exchange_(std::move(exchange)),
        gate_(gate),
        needs_(std::move(needs)),
        peer_(std::move(peer)) {}
  ~AuditedExchange() override {
    if (!recorded_)
      gate_.called(needs_, peer_, {StatusCode::cancelled, "the call was not answered"});
  }
  AuditedExchange(const AuditedExchange&) = delete;
  AuditedExchange& operator=(const AuditedExchange&) = delete;

  void answer(http::HttpResponse response) override {
    record(status_of(response));
    exchange_->answer(std::move(response));
  }
  std::unique_ptr<http::ResponseStream> stream(http::HttpResponse head) override {
    record(status_of(head));
    return exchange_->stream(std::move(head));
  }
  void on_gone(Done gone) override { exchange_->on_gone(std::move(gone)); }

 private:
  void record(const Status& result) {
    if (!std::exchange(recorded_, true)) gate_.called(needs_, peer_, result);
  }

  std::unique_ptr<http::Exchange> exchange_;
  net::Gate& gate_;
  const net::CallNeeds needs_;
  const net::PeerIdentity peer_;
  bool recorded_ = false;
};

}  // namespace

net::CallNeeds needs_of_protocol(const http::HttpRequest& head) {
  if (path_of(head) == kTracePath) return {Right::admin, "trace"};
  const std::string_view method = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  Result<net::kserve::Route> found = net::kserve::find_route(method, head.target, nullptr);
  if (!found.ok()) return {};  // the next handler refuses it
  net::kserve::Route& route = found.value();
  const EndpointNeeds needs = needs_of(route.endpoint);
  return {needs.right, std::string(needs.action), std::move(route.model), std::move(route.region)};
}

net::CallNeeds needs_of_metrics(const http::HttpRequest& /*head*/) {
  return {Right::observe, "observe"};
}

// Retry-After is in whole seconds.
void add_retry_after(http::HttpResponse& response, Duration after) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(after).count();
  response.headers.push_back({"Retry-After", std::to_string(std::max<long>(1, seconds))});
}

TokenHandler::TokenHandler(net::Gate& gate, NeedsOf needs_of,
                           std::unique_ptr<http::RequestHandler> next)
    : ChainedHandler(std::move(next)), gate_(gate), needs_of_(needs_of) {}

std::optional<http::HttpResponse> TokenHandler::refuse(const http::HttpRequest& head) {
  if (!gate_.guards_inference()) return ChainedHandler::refuse(head);
  const net::CallNeeds needs = needs_of_(head);
  net::PeerIdentity unknown;
  net::PeerIdentity& peer = head.peer ? *head.peer : unknown;
  gate_.tokens()->identify(http::find_header(head.headers, "Authorization"), peer);
  net::Admission admission;
  if (needs.right == Right::inference) {
    admission = gate_.announce(peer, needs.model);
  } else {
    admission.status = gate_.check(needs, peer);
  }
  if (admission.status.ok()) return ChainedHandler::refuse(head);
  return refusal(admission, needs.right);
}

// Basic makes a browser prompt for the token, which is the only way to log in to the dashboard.
http::HttpResponse TokenHandler::refusal(const net::Admission& refused, Right needed) {
  const Status& why = refused.status;
  if (why.code() == StatusCode::forbidden) return error(kForbidden, why.message());
  if (why.code() == StatusCode::limited) {
    http::HttpResponse limited = error(kTooManyRequests, why.message());
    add_retry_after(limited, refused.retry_after);
    return limited;
  }
  http::HttpResponse refusal = error(kUnauthorized, why.message());
  refusal.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (needed == Right::observe)
    refusal.headers.push_back({"WWW-Authenticate", R"(Basic realm="gpulet")"});
  return refusal;
}

void TokenHandler::on_request(http::HttpRequest request, std::unique_ptr<http::Exchange> exchange) {
  // Skips inferences, which are most of the requests.
  if (!request.target.ends_with("/infer") && request.peer) {
    net::CallNeeds needs = needs_of_(request);
    if (needs.right == Right::admin) {
      exchange = std::make_unique<AuditedExchange>(std::move(exchange), gate_, std::move(needs),
                                                   *request.peer);
    }
  }
  ChainedHandler::on_request(std::move(request), std::move(exchange));
}

// ---- helpers and MetricsHandler

std::string_view path_of(const http::HttpRequest& request) {
  const std::string_view target = request.target;
  return target.substr(0, target.find('?'));
}

bool reads(const http::HttpRequest& head) { return head.method == "GET" || head.method == "HEAD"; }

std::optional<http::HttpResponse> MetricsHandler::refuse(const http::HttpRequest& head) {
  if (path_of(head) != "/metrics") return error(404, "not found; metrics are at /metrics");
  if (!reads(head)) return error(405, "use GET");
  return std::nullopt;
}

void MetricsHandler::on_request(http::HttpRequest /*request*/,
                                std::unique_ptr<http::Exchange> exchange) {
  metrics_.metrics([waiting = std::shared_ptr(std::move(exchange))](const Bytes& page) {
    http::HttpResponse response = http::text_response(200, kMetricsContentType, "");
    response.body = {page};
    waiting->answer(std::move(response));
  });
}

http::HttpResponse MetricsHandler::error(unsigned status, const std::string& message) {
  return http::text_response(status, "text/plain; charset=utf-8", message + "\n");
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

TraceHandler::TraceHandler(net::asio::io_context& io, Source& source,
                           std::unique_ptr<http::RequestHandler> next)
    : ChainedHandler(std::move(next)), io_(io), source_(source), background_(io) {}

TraceHandler::~TraceHandler() = default;

std::optional<http::HttpResponse> TraceHandler::refuse(const http::HttpRequest& head) {
  if (path_of(head) != kTracePath) return ChainedHandler::refuse(head);
  if (!reads(head)) return error(405, "use GET");
  const auto query = read_query(head);
  if (!query.ok()) return error(400, query.status().message());
  if (stopped_) return error(kUnavailable, "the frontend is stopping");
  return run_ ? std::optional(busy()) : std::nullopt;
}

void TraceHandler::stop() {
  stopped_ = true;
  const RunPointer run = run_;
  if (!run) return;
  if (const auto waiting = std::exchange(run->exchange, nullptr))
    waiting->answer(error(kUnavailable, "the frontend is stopping"));
  if (run->stream) run->stream->abort();
  end(run);
}

http::HttpResponse TraceHandler::busy() {
  const double left_s =
      std::max(0.0, to_seconds(run_->timer.expiry() - steady_timer::clock_type::now()));
  const auto seconds = static_cast<long long>(run_->exchange ? std::ceil(left_s) + 1 : 1);
  http::HttpResponse refusal =
      error(kOneTraceAtATime,
            "another trace is in progress; try again in " + std::to_string(seconds) + " s");
  refusal.headers.push_back({"Retry-After", std::to_string(seconds)});
  return refusal;
}

void TraceHandler::on_request(http::HttpRequest request, std::unique_ptr<http::Exchange> exchange) {
  if (path_of(request) != kTracePath)
    return ChainedHandler::on_request(std::move(request), std::move(exchange));
  if (run_) return exchange->answer(busy());
  const TraceQuery query = read_query(request).value();  // refuse() has checked it
  if (request.method == "HEAD")
    return exchange->answer(http::text_response(200, query.format->content_type, ""));
  const auto run = std::make_shared<Run>(io_, query, source_.begin(query.length));
  run_ = run;
  run->exchange = std::move(exchange);
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
