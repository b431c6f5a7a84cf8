// TokenHandler: the tokens that HTTP requests must show (docs/security.md), and what the audit log
// is told of them; what may pass is another handler's. Single-strand type, as the server that it
// handles for.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gpulet/net/gate.h"
#include "gpulet/net/http/server.h"

namespace gpulet::frontend {

// What a request needs before it is read on.
using NeedsOf = net::CallNeeds (*)(const net::http::HttpRequest& head);

// Of the Open Inference Protocol and traces.
[[nodiscard]] net::CallNeeds needs_of_protocol(const net::http::HttpRequest& head);
// Of the port of metrics and the dashboard.
[[nodiscard]] net::CallNeeds needs_of_metrics(const net::http::HttpRequest& head);

// For a refusal with 429.
void add_retry_after(net::http::HttpResponse& response, Duration after);

class TokenHandler final : public net::http::RequestHandler {
 public:
  // The gate outlives it.
  TokenHandler(net::Gate& gate, NeedsOf needs_of,
               std::unique_ptr<net::http::RequestHandler> others);

  // 401, 403 or 429 before the body is read.
  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override;
  [[nodiscard]] BodyBound body_bound(const net::http::HttpRequest& head) override {
    return others_->body_bound(head);
  }
  [[nodiscard]] bool may_use_reserve(const net::http::HttpRequest& head) override {
    return others_->may_use_reserve(head);
  }
  void on_request(net::http::HttpRequest request,
                  std::unique_ptr<net::http::Exchange> exchange) override;
  [[nodiscard]] net::http::HttpResponse error(unsigned status, const std::string& message) override;

 private:
  [[nodiscard]] net::http::HttpResponse refusal(const net::Admission& refused, net::Right needed);

  net::Gate& gate_;
  const NeedsOf needs_of_;
  std::unique_ptr<net::http::RequestHandler> others_;
};

}  // namespace gpulet::frontend
