// TokenHandler: the tokens that HTTP requests must show (docs/security.md); what may pass is
// another handler's. Single-strand type, as the server that it handles for.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gpulet/net/http/server.h"
#include "gpulet/net/tokens.h"

namespace gpulet::frontend {

class TokenHandler final : public net::http::RequestHandler {
 public:
  TokenHandler(std::shared_ptr<const net::Tokens> tokens,
               std::unique_ptr<net::http::RequestHandler> others);

  // 401 before the body is read.
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
  std::shared_ptr<const net::Tokens> tokens_;
  std::unique_ptr<net::http::RequestHandler> others_;
};

}  // namespace gpulet::frontend
