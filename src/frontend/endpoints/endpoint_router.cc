#include "frontend/endpoints/endpoint_router.h"

#include <algorithm>
#include <chrono>

#include "frontend/loop/done.h"

namespace gpulet::frontend {

namespace http = net::http;
using access::Right;

namespace {

constexpr unsigned kBadRequest = 400;
constexpr unsigned kUnauthorized = 401;
constexpr unsigned kForbidden = 403;
constexpr unsigned kTooManyRequests = 429;

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
  AuditedExchange(std::unique_ptr<http::Exchange> exchange, access::Gate& gate,
                  access::CallNeeds needs, access::PeerIdentity peer)
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
  access::Gate& gate_;
  const access::CallNeeds needs_;
  const access::PeerIdentity peer_;
  bool recorded_ = false;
};

// HEAD is answered like GET; the server omits the body.
std::string_view method_of(const http::HttpRequest& head) {
  return head.method == "HEAD" ? std::string_view("GET") : std::string_view(head.method);
}

std::optional<net::kserve::Route> names_of(std::string_view pattern, std::string_view path,
                                           const std::optional<net::kserve::TargetPath>& target) {
  if (pattern.ends_with('*')) {
    pattern.remove_suffix(1);
    return path.starts_with(pattern) ? std::optional(net::kserve::Route()) : std::nullopt;
  }
  if (pattern.starts_with('/'))
    return path == pattern ? std::optional(net::kserve::Route()) : std::nullopt;
  return target ? target->match(pattern) : std::nullopt;
}

void add_method(std::string_view method, std::string& methods) {
  if (methods.find(method) != std::string::npos) return;
  if (!methods.empty()) methods += ", ";
  methods += method;
}

// REQUIRES: the router has found it.
const EndpointRoute& route_of(const http::HttpRequest& request) {
  return static_cast<const EndpointRoute&>(*request.route);
}

access::CallNeeds needs_of(const EndpointRoute& route) {
  return {route.row->right, std::string(route.row->action), route.names.model, route.names.region};
}

}  // namespace

std::string_view path_of(const http::HttpRequest& request) {
  const std::string_view target = request.target;
  return target.substr(0, target.find('?'));
}

bool reads(const http::HttpRequest& head) { return head.method == "GET" || head.method == "HEAD"; }

// Retry-After is in whole seconds.
void add_retry_after(http::HttpResponse& response, Duration after) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(after).count();
  response.headers.push_back({"Retry-After", std::to_string(std::max<long>(1, seconds))});
}

std::shared_ptr<const http::RequestRoute> EndpointRouter::route(const http::HttpRequest& head) {
  const auto route = std::make_shared<EndpointRoute>();
  if (!find(head, *route) && engine_ != nullptr) static_cast<void>(engine_->find(head, *route));
  return route;
}

bool EndpointRouter::find(const http::HttpRequest& head, EndpointRoute& route) const {
  const std::string_view path = path_of(head);
  const std::string_view method = method_of(head);
  const std::optional<net::kserve::TargetPath> target = net::kserve::TargetPath::of(head.target);
  for (const auto& service : services_) {
    for (const EndpointRow& row : service->rows()) {
      std::optional<net::kserve::Route> names = names_of(row.pattern, path, target);
      if (!names) continue;
      route.service = service.get();
      route.row = &row;
      route.names = std::move(*names);
      if (row.method.empty() || row.method == method) return true;
      add_method(row.method, route.allow);
    }
  }
  return false;
}

bool EndpointRouter::crosses(const EndpointRoute& route) const {
  if (engine_ == nullptr || route.row->handle == nullptr) return false;
  return std::none_of(services_.begin(), services_.end(),
                      [&route](const auto& service) { return service.get() == route.service; });
}

std::optional<http::HttpResponse> EndpointRouter::refuse(const http::HttpRequest& head) {
  const EndpointRoute& route = route_of(head);
  if (std::optional<http::HttpResponse> no = check_token(route, head)) return no;
  if (route.row->refuse == nullptr || crosses(route)) return std::nullopt;
  return (route.service->*route.row->refuse)(route, head);
}

http::RequestHandler::BodyBound EndpointRouter::body_bound(const http::HttpRequest& head) {
  const EndpointRoute& route = route_of(head);
  // Without a bound of its own the body has no meaning: it is read and left unused.
  if (route.row->bound == nullptr) return {.max_bytes = kUnaskedBodyBytes};
  return (route.service->*route.row->bound)(route);
}

bool EndpointRouter::may_use_reserve(const http::HttpRequest& head) {
  return route_of(head).row->reserve;
}

void EndpointRouter::on_request(http::HttpRequest request,
                                std::unique_ptr<http::Exchange> exchange) {
  const EndpointRoute& route = route_of(request);
  if (crosses(route))
    return crossing_->hand_over(std::move(request), std::move(exchange), *engine_);
  if (route.row->right == Right::admin && request.peer) {
    exchange = std::make_unique<AuditedExchange>(std::move(exchange), gate_, needs_of(route),
                                                 *request.peer);
  }
  (route.service->*route.row->handle)({route, request, std::move(exchange)});
}

void EndpointRouter::take_over(http::HttpRequest request,
                               std::unique_ptr<http::Exchange> exchange) {
  const EndpointRoute& route = route_of(request);
  if (route.row->refuse != nullptr) {
    if (auto no = (route.service->*route.row->refuse)(route, request))
      return exchange->answer(std::move(*no));
  }
  on_request(std::move(request), std::move(exchange));
}

std::optional<http::HttpResponse> EndpointRouter::check_token(const EndpointRoute& route,
                                                              const http::HttpRequest& head) {
  if (!gate_.guards_inference()) return std::nullopt;
  const access::CallNeeds needs = needs_of(route);
  access::PeerIdentity unknown;
  access::PeerIdentity& peer = head.peer ? *head.peer : unknown;
  gate_.tokens()->identify(http::find_header(head.headers, "Authorization"), peer);
  access::Access access;
  if (needs.right == Right::inference) {
    access = gate_.announce(peer, needs.model);
  } else {
    access.status = gate_.check(needs, peer);
  }
  if (access.status.ok()) return std::nullopt;
  return refusal(access, needs.right);
}

// Basic makes a browser prompt for the token, which is the only way to log in to the dashboard.
http::HttpResponse EndpointRouter::refusal(const access::Access& refused, Right needed) {
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

}  // namespace gpulet::frontend
