#include "token_handler.h"

#include <utility>

#include "gpulet/net/kserve/http_api.h"
#include "http_pages.h"

namespace gpulet::frontend {
namespace {

namespace http = net::http;
using net::Right;
using net::kserve::Endpoint;

constexpr unsigned kUnauthorized = 401;

Right right_needed(const http::HttpRequest& head) {
  if (path_of(head) == kTracePath) return Right::admin;
  const Result<net::kserve::Route> route =
      net::kserve::find_route(head.method, head.target, nullptr);
  if (!route.ok()) return Right::nothing;  // there is nothing, as the handler behind says
  switch (route.value().endpoint) {
    case Endpoint::infer:
      return Right::inference;
    case Endpoint::repository_load:
    case Endpoint::repository_unload:
    case Endpoint::shared_memory_register:
    case Endpoint::shared_memory_unregister:
      return Right::admin;
    default:
      return Right::nothing;
  }
}

}  // namespace

TokenHandler::TokenHandler(std::shared_ptr<const net::Tokens> tokens,
                           std::unique_ptr<http::RequestHandler> others)
    : tokens_(std::move(tokens)), others_(std::move(others)) {}

std::optional<http::HttpResponse> TokenHandler::refuse(const http::HttpRequest& head) {
  const Status may =
      tokens_->check_header(right_needed(head), http::find_header(head.headers, "Authorization"));
  if (may.ok()) return others_->refuse(head);
  http::HttpResponse refusal = others_->error(kUnauthorized, may.message());
  refusal.headers.push_back({"WWW-Authenticate", "Bearer"});
  return refusal;
}

void TokenHandler::on_request(http::HttpRequest request, std::unique_ptr<http::Exchange> exchange) {
  others_->on_request(std::move(request), std::move(exchange));
}

http::HttpResponse TokenHandler::error(unsigned status, const std::string& message) {
  return others_->error(status, message);
}

}  // namespace gpulet::frontend
