#include "net/http/acceptance.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "net/http/coding.h"

namespace gpulet::net::http {
namespace {

constexpr unsigned kUnsupportedCoding = 415;
constexpr unsigned kExpectationFailed = 417;

}  // namespace

std::optional<HttpResponse> Acceptance::refusal(const RequestReader& request, bool reserved) {
  if (reserved && !handler_.may_use_reserve(request.head())) {
    return handler_.error(kUnavailable,
                          "the server has reached its connection limit; try again later");
  }
  if (std::optional<HttpResponse> no = handler_.refuse(request.head())) return no;
  return unsupported(request);
}

std::optional<HttpResponse> Acceptance::unsupported(const RequestReader& request) {
  const Headers& headers = request.head().headers;
  const std::string_view coding = find_header(headers, "Content-Encoding");
  if (!parse_coding(coding)) {
    return handler_.error(
        kUnsupportedCoding,
        fmt::format(R"(Content-Encoding "{}" is not supported; use gzip, deflate or none)",
                    coding));
  }
  const std::string_view expected = find_header(headers, "Expect");
  if (request.http_1_1() && !expected.empty() && !same_ignoring_case(expected, "100-continue")) {
    return handler_.error(kExpectationFailed,
                          fmt::format(R"(Expect "{}" is not supported)", expected));
  }
  return std::nullopt;
}

// Short unencoded bodies do not need the handler's limit.
std::optional<HttpResponse> Acceptance::bound_body(const RequestReader& request) {
  max_body_bytes_ = options_.max_body_bytes;
  bound_reason_.clear();
  const HttpRequest& head = request.head();
  const std::optional<std::uint64_t> bytes = request.body_bytes();
  if (bytes && *bytes == 0) return std::nullopt;
  const bool asks = !bytes || *bytes > RequestHandler::kUnaskedBodyBytes || head.method == "GET" ||
                    head.method == "HEAD" || !find_header(head.headers, "Content-Encoding").empty();
  if (!asks) return std::nullopt;
  RequestHandler::BodyBound bound = handler_.body_bound(head);
  if (bound.max_bytes < max_body_bytes_) {
    max_body_bytes_ = bound.max_bytes;
    bound_reason_ = std::move(bound.reason);
  }
  return std::move(bound.refusal);
}

std::string Acceptance::too_large(std::string message) const {
  return bound_reason_.empty() ? message : message + ": " + bound_reason_;
}

}  // namespace gpulet::net::http
