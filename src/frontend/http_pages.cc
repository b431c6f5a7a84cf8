#include "http_pages.h"

#include <string_view>
#include <utility>

#include "metrics.h"

namespace gpulet::frontend {
namespace {

namespace http = net::http;

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
  metrics_([waiting = std::shared_ptr(std::move(exchange))](const Bytes& page) {
    http::HttpResponse response = http::text_response(200, kMetricsContentType, "");
    response.body = {page};
    waiting->answer(std::move(response));
  });
}

http::HttpResponse MetricsHandler::error(unsigned status, const std::string& message) {
  return http::text_response(status, "text/plain; charset=utf-8", message + "\n");
}

}  // namespace gpulet::frontend
