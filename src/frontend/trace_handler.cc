#include "trace_handler.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string_view>
#include <utility>

#include "http_pages.h"

namespace gpulet::frontend {
namespace {

namespace http = net::http;
using net::asio::steady_timer;

constexpr double kLongestTraceSeconds = 600;
constexpr unsigned kOneTraceAtATime = 429;
constexpr unsigned kUnavailable = 503;

// The parameter's value in the target's query; empty where it has none.
std::string_view query_of(const http::HttpRequest& request, std::string_view name) {
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

}  // namespace

// Parts of TraceHandler::Run.
namespace tracing {

using Text = std::unique_ptr<observe::TraceText>;

struct TraceFormat {
  std::string_view name;
  std::string_view content_type;
  Text (*write)(observe::TraceRecords, const observe::WallClock&);
};

struct TraceQuestion {
  Duration length{};
  const TraceFormat* format = nullptr;
};

// It and its records, a hundred thousand of them perhaps, are touched and destroyed on the
// background's thread alone.
struct Writing {
  Text text;
};

}  // namespace tracing

namespace {

using tracing::TraceFormat;
using tracing::TraceQuestion;

constexpr std::array kFormats{
    TraceFormat{"chrome", "application/json",
                [](observe::TraceRecords records, const observe::WallClock&) {
                  return observe::chrome_trace(std::move(records));
                }},
    TraceFormat{"log", "text/csv", observe::model_log},
    TraceFormat{"applications", "text/csv", observe::application_log},
};

Result<TraceQuestion> read_question(const http::HttpRequest& request) {
  TraceQuestion question;
  const std::string_view seconds = query_of(request, "seconds");
  double length_s = 0;
  if (!seconds.empty()) {
    const auto [end, failure] =
        std::from_chars(seconds.data(), seconds.data() + seconds.size(), length_s);
    if (failure != std::errc() || end != seconds.data() + seconds.size() ||
        !(length_s >= 0 && length_s <= kLongestTraceSeconds)) {
      return Status(StatusCode::invalid,
                    "seconds must be a number from 0 to 600; was " + std::string(seconds));
    }
  }
  question.length = from_seconds(length_s);
  const std::string_view wanted = query_of(request, "format");
  for (const TraceFormat& format : kFormats) {
    if (wanted == format.name || (wanted.empty() && &format == kFormats.data()))
      question.format = &format;
  }
  if (question.format == nullptr) {
    return Status(StatusCode::invalid,
                  "format must be chrome, log or applications; was " + std::string(wanted));
  }
  return question;
}

}  // namespace

struct TraceHandler::Run {
  Run(net::asio::io_context& io, const TraceQuestion& asked, std::uint64_t from)
      : question(asked), mark(from), timer(io) {}

  TraceQuestion question;
  std::uint64_t mark;
  steady_timer timer;                        // until the records are here, then until it is sent
  std::unique_ptr<http::Exchange> exchange;  // until the records are here
  std::unique_ptr<http::ResponseStream> stream;
  std::shared_ptr<const tracing::Writing> writing;
};

TraceHandler::TraceHandler(net::asio::io_context& io, Source source,
                           std::unique_ptr<http::RequestHandler> others)
    : io_(io), source_(std::move(source)), others_(std::move(others)), background_(io) {}

TraceHandler::~TraceHandler() = default;

std::optional<http::HttpResponse> TraceHandler::refuse(const http::HttpRequest& head) {
  if (path_of(head) != kTracePath) return others_->refuse(head);
  if (!reads(head)) return error(405, "use GET");
  const auto question = read_question(head);
  if (!question.ok()) return error(400, question.status().message());
  if (stopped_) return error(kUnavailable, "the frontend stops");
  return run_ ? std::optional(busy()) : std::nullopt;
}

void TraceHandler::stop() {
  stopped_ = true;
  const RunPointer run = run_;
  if (!run) return;
  if (const auto waiting = std::exchange(run->exchange, nullptr))
    waiting->answer(error(kUnavailable, "the frontend stops"));
  if (run->stream) run->stream->abort();
  end(run);
}

http::HttpResponse TraceHandler::busy() {
  const double left_s =
      std::max(0.0, to_seconds(run_->timer.expiry() - steady_timer::clock_type::now()));
  const auto seconds = static_cast<long long>(run_->exchange ? std::ceil(left_s) + 1 : 1);
  http::HttpResponse refusal = error(kOneTraceAtATime, "another trace is under way; try again in " +
                                                           std::to_string(seconds) + " s");
  refusal.headers.push_back({"Retry-After", std::to_string(seconds)});
  return refusal;
}

void TraceHandler::on_request(http::HttpRequest request, std::unique_ptr<http::Exchange> exchange) {
  if (path_of(request) != kTracePath)
    return others_->on_request(std::move(request), std::move(exchange));
  if (run_) return exchange->answer(busy());
  const TraceQuestion question = read_question(request).value();  // refuse() has seen to it
  if (request.method == "HEAD")
    return exchange->answer(http::text_response(200, question.format->content_type, ""));
  const auto run = std::make_shared<Run>(io_, question, source_.begin(question.length));
  run_ = run;
  run->exchange = std::move(exchange);
  run->exchange->on_gone([this, asked = std::weak_ptr<Run>(run)] {
    if (const RunPointer gone = asked.lock()) end(gone);
  });
  run->timer.expires_after(question.length);
  run->timer.async_wait([this, run](const boost::system::error_code& failure) {
    if (!failure && run == run_) send_records(run);
  });
}

http::HttpResponse TraceHandler::error(unsigned status, const std::string& message) {
  return others_->error(status, message);
}

void TraceHandler::send_records(const RunPointer& run) {
  http::HttpResponse head;
  head.headers.push_back({"Content-Type", std::string(run->question.format->content_type)});
  run->stream = std::exchange(run->exchange, nullptr)->stream(std::move(head));
  run->timer.expires_after(kLongestSending);
  run->timer.async_wait([this, run](const boost::system::error_code& failure) {
    if (failure || run != run_) return;
    run->stream->abort();
    end(run);
  });
  run->writing = background_.shared(tracing::Writing{
      run->question.format->write(source_.since(run->mark), source_.wall_clock())});
  send_part(run);
}

void TraceHandler::send_part(const RunPointer& run) {
  background_.run([writing = run->writing] { return writing->text->next(); },
                  [this, run](std::string part) {
                    if (run != run_) return;
                    if (part.empty() || !run->stream->send(std::move(part))) return end(run);
                    run->stream->on_drained([this, run] {
                      if (run == run_) send_part(run);
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

}  // namespace gpulet::frontend
