#include "gpulet/net/kserve/http_api.h"
#include "json_text.h"

namespace gpulet::net::kserve {
namespace {

unsigned http_status(StatusCode code) {
  switch (code) {
    case StatusCode::not_found:
      return 404;
    case StatusCode::unavailable:
    case StatusCode::overloaded:
    case StatusCode::too_late:
      return 503;
    case StatusCode::timeout:
      return 504;
    case StatusCode::cancelled:
      return 499;
    case StatusCode::internal:
      return 500;
    case StatusCode::unauthenticated:
      return 401;
    case StatusCode::forbidden:
      return 403;
    case StatusCode::limited:
      return 429;
    case StatusCode::ok:
    case StatusCode::invalid:
    case StatusCode::malformed:
      break;
  }
  return 400;
}

}  // namespace

http::HttpResponse error(unsigned status, const std::string& message) {
  std::string json = R"({"error":)";
  append_text(json, message);
  json += '}';
  return http::text_response(status, "application/json", std::move(json));
}

http::HttpResponse error(const Status& status) {
  // Clients take an error without words for a broken answer.
  return error(http_status(status.code()),
               status.message().empty() ? std::string(to_string(status.code())) : status.message());
}

http::HttpResponse ready(bool ready, const std::string& why_not) {
  if (ready) return http::text_response(200, "application/json", "");
  return why_not.empty() ? http::text_response(400, "application/json", "") : error(400, why_not);
}

}  // namespace gpulet::net::kserve
