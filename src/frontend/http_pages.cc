#include "http_pages.h"

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "metrics.h"

namespace gpulet::frontend {
namespace {

namespace http = net::http;

constexpr double kLongestTraceSeconds = 600;

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

struct TraceFormat {
  std::string_view name;
  std::string_view content_type;
  std::string (*write)(const TraceLog::Records&, const observe::WallClock&);
};

constexpr std::array kFormats{
    TraceFormat{"chrome", "application/json",
                [](const TraceLog::Records& records, const observe::WallClock&) {
                  return observe::chrome_trace(records);
                }},
    TraceFormat{"log", "text/csv",
                [](const TraceLog::Records& records, const observe::WallClock& wall) {
                  return observe::model_log(records, wall);
                }},
    TraceFormat{"applications", "text/csv",
                [](const TraceLog::Records& records, const observe::WallClock& wall) {
                  return observe::application_log(records, wall);
                }},
};

struct TraceQuestion {
  Duration length{};
  const TraceFormat* format = nullptr;
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

std::string_view path_of(const http::HttpRequest& request) {
  const std::string_view target = request.target;
  return target.substr(0, target.find('?'));
}

bool reads(const http::HttpRequest& head) { return head.method == "GET" || head.method == "HEAD"; }

std::optional<http::HttpResponse> MetricsHandler::refuse(const http::HttpRequest& head) {
  if (path_of(head) != "/metrics") return error(404, "metrics are at /metrics");
  if (!reads(head)) return error(405, "use GET");
  return std::nullopt;
}

void MetricsHandler::on_request(http::HttpRequest /*request*/,
                                std::unique_ptr<http::Exchange> exchange) {
  exchange->answer(http::text_response(200, kMetricsContentType, metrics_()));
}

http::HttpResponse MetricsHandler::error(unsigned status, const std::string& message) {
  return http::text_response(status, "text/plain; charset=utf-8", message + "\n");
}

std::optional<http::HttpResponse> TraceHandler::refuse(const http::HttpRequest& head) {
  if (path_of(head) != kTracePath) return others_->refuse(head);
  if (!reads(head)) return error(405, "use GET");
  const auto question = read_question(head);
  return question.ok() ? std::nullopt : std::optional(error(400, question.status().message()));
}

void TraceHandler::on_request(http::HttpRequest request, std::unique_ptr<http::Exchange> exchange) {
  if (path_of(request) != kTracePath)
    return others_->on_request(std::move(request), std::move(exchange));
  const TraceQuestion question = read_question(request).value();  // refuse() has seen to it
  trace_(question.length, [waiting = std::shared_ptr(std::move(exchange)), question,
                           clock = wall_clock_](const TraceLog::Records& records) {
    waiting->answer(http::text_response(200, question.format->content_type,
                                        question.format->write(records, clock())));
  });
}

http::HttpResponse TraceHandler::error(unsigned status, const std::string& message) {
  return others_->error(status, message);
}

}  // namespace gpulet::frontend
