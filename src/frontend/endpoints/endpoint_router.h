// EndpointRouter: the handler of a port. It finds the endpoint of each request once, checks the
// token of the request, and records administrative calls (docs/security.md).
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

class EndpointRouter final : public net::http::RequestHandler {
 public:
  // `gate` must outlive this object.
  EndpointRouter(access::Gate& gate, ErrorFormat format) : gate_(gate), format_(format) {}

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
  [[nodiscard]] std::optional<net::http::HttpResponse> check_token(
      const EndpointRoute& route, const net::http::HttpRequest& head);
  [[nodiscard]] net::http::HttpResponse refusal(const access::Access& refused,
                                                access::Right needed);

  access::Gate& gate_;
  const ErrorFormat format_;
  std::vector<std::unique_ptr<EndpointService>> services_;
};

}  // namespace gpulet::frontend
