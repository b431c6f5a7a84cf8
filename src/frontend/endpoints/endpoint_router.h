// EndpointRouter: the handler of a port. It finds the endpoint of each request once, checks the
// token of the request, and records administrative calls (docs/security.md). Belongs to one strand,
// as its services; on an I/O thread it finds the endpoints of the engine's router, too, and hands
// their requests over.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/endpoints/endpoint.h"
#include "gpulet/access/gate.h"
#include "gpulet/net/http/server.h"

namespace gpulet::frontend {

class EndpointRouter;

// The way of requests from the thread of a connection to the engine's.
class RequestCrossing {
 public:
  // Has `engine` take the request over, with an exchange for its thread.
  virtual void hand_over(net::http::HttpRequest request,
                         std::unique_ptr<net::http::Exchange> exchange, EndpointRouter& engine) = 0;

 protected:
  ~RequestCrossing() = default;
};

class EndpointRouter final : public net::http::RequestHandler {
 public:
  // `gate` must outlive this object.
  EndpointRouter(access::Gate& gate, ErrorFormat format) : gate_(gate), format_(format) {}

  // Finds the endpoints of `engine` after its own. They have no bounds of their bodies. REQUIRES:
  // the services of `engine` are complete; both outlive this object.
  void add_endpoints_of(EndpointRouter& engine, RequestCrossing& crossing) {
    engine_ = &engine;
    crossing_ = &crossing;
  }
  // A request that was handed over by the router of another thread.
  void take_over(net::http::HttpRequest request, std::unique_ptr<net::http::Exchange> exchange);

  // Rows of earlier services come first. The rows of the last one must take every request.
  template <typename Service>
  Service& add(std::unique_ptr<Service> service) {
    Service& added = *service;
    services_.push_back(std::move(service));
    return added;
  }

  [[nodiscard]] std::shared_ptr<const net::http::RequestRoute> route(
      const net::http::HttpRequest& head) override;
  // Refuses for the token with 401, 403 or 429, then as the endpoint does.
  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override;
  [[nodiscard]] BodyBound body_bound(const net::http::HttpRequest& head) override;
  [[nodiscard]] bool may_use_reserve(const net::http::HttpRequest& head) override;
  void on_request(net::http::HttpRequest request,
                  std::unique_ptr<net::http::Exchange> exchange) override;
  [[nodiscard]] net::http::HttpResponse error(unsigned status,
                                              const std::string& message) override {
    return format_(status, message);
  }

 private:
  [[nodiscard]] bool find(const net::http::HttpRequest& head, EndpointRoute& route) const;
  // Whether the endpoint is the engine's, and has a handler there.
  [[nodiscard]] bool crosses(const EndpointRoute& route) const;
  [[nodiscard]] std::optional<net::http::HttpResponse> check_token(
      const EndpointRoute& route, const net::http::HttpRequest& head);
  [[nodiscard]] net::http::HttpResponse refusal(const access::Access& refused,
                                                access::Right needed);

  access::Gate& gate_;
  const ErrorFormat format_;
  std::vector<std::unique_ptr<EndpointService>> services_;
  EndpointRouter* engine_ = nullptr;  // null: all endpoints are its own
  RequestCrossing* crossing_ = nullptr;
};

}  // namespace gpulet::frontend
