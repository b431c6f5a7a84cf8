#include "token_handler.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string_view>
#include <utility>

#include "gpulet/net/kserve/http_api.h"
#include "http_pages.h"

namespace gpulet::frontend {

namespace http = net::http;
using net::Right;
using net::kserve::Endpoint;

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

// Tells the audit log how an administrative call was answered, also where the client has left.
class AuditedExchange final : public http::Exchange {
 public:
  AuditedExchange(std::unique_ptr<http::Exchange> exchange, net::Gate& gate, net::CallNeeds needs,
                  net::PeerIdentity peer)
      : exchange_(std::move(exchange)),
        gate_(gate),
        needs_(std::move(needs)),
        peer_(std::move(peer)) {}
  ~AuditedExchange() override {
    if (!told_) gate_.called(needs_, peer_, {StatusCode::cancelled, "it was not answered"});
  }
  AuditedExchange(const AuditedExchange&) = delete;
  AuditedExchange& operator=(const AuditedExchange&) = delete;

  void answer(http::HttpResponse response) override {
    tell(status_of(response));
    exchange_->answer(std::move(response));
  }
  std::unique_ptr<http::ResponseStream> stream(http::HttpResponse head) override {
    tell(status_of(head));
    return exchange_->stream(std::move(head));
  }
  void on_gone(std::function<void()> gone) override { exchange_->on_gone(std::move(gone)); }

 private:
  void tell(const Status& result) {
    if (!std::exchange(told_, true)) gate_.called(needs_, peer_, result);
  }

  std::unique_ptr<http::Exchange> exchange_;
  net::Gate& gate_;
  const net::CallNeeds needs_;
  const net::PeerIdentity peer_;
  bool told_ = false;
};

}  // namespace

net::CallNeeds needs_of_protocol(const http::HttpRequest& head) {
  if (path_of(head) == kTracePath) return {Right::admin, "trace"};
  const std::string_view method = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  Result<net::kserve::Route> found = net::kserve::find_route(method, head.target, nullptr);
  if (!found.ok()) return {};  // there is nothing, as the handler behind says
  net::kserve::Route& route = found.value();
  const EndpointNeeds needs = needs_of(route.endpoint);
  return {needs.right, std::string(needs.action), std::move(route.model), std::move(route.region)};
}

net::CallNeeds needs_of_metrics(const http::HttpRequest& /*head*/) {
  return {Right::observe, "observe"};
}

// The header takes whole seconds.
void add_retry_after(http::HttpResponse& response, Duration after) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(after).count();
  response.headers.push_back({"Retry-After", std::to_string(std::max<long>(1, seconds))});
}

TokenHandler::TokenHandler(net::Gate& gate, NeedsOf needs_of,
                           std::unique_ptr<http::RequestHandler> others)
    : gate_(gate), needs_of_(needs_of), others_(std::move(others)) {}

std::optional<http::HttpResponse> TokenHandler::refuse(const http::HttpRequest& head) {
  if (!gate_.guards_inference()) return others_->refuse(head);
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
  if (admission.status.ok()) return others_->refuse(head);
  return refusal(admission, needs.right);
}

// A browser asks its user for a token where Basic is offered: the dashboard has no other way.
http::HttpResponse TokenHandler::refusal(const net::Admission& refused, Right needed) {
  const Status& why = refused.status;
  if (why.code() == StatusCode::forbidden) return others_->error(kForbidden, why.message());
  if (why.code() == StatusCode::limited) {
    http::HttpResponse limited = others_->error(kTooManyRequests, why.message());
    add_retry_after(limited, refused.retry_after);
    return limited;
  }
  http::HttpResponse refusal = others_->error(kUnauthorized, why.message());
  refusal.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (needed == Right::observe)
    refusal.headers.push_back({"WWW-Authenticate", R"(Basic realm="gpulet")"});
  return refusal;
}

void TokenHandler::on_request(http::HttpRequest request, std::unique_ptr<http::Exchange> exchange) {
  // Most requests are inferences: they are not looked at twice.
  if (!request.target.ends_with("/infer") && request.peer) {
    net::CallNeeds needs = needs_of_(request);
    if (needs.right == Right::admin) {
      exchange = std::make_unique<AuditedExchange>(std::move(exchange), gate_, std::move(needs),
                                                   *request.peer);
    }
  }
  others_->on_request(std::move(request), std::move(exchange));
}

http::HttpResponse TokenHandler::error(unsigned status, const std::string& message) {
  return others_->error(status, message);
}

}  // namespace gpulet::frontend
