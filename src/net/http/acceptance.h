// Acceptance: whether a request is received whose head has arrived, and up to which length its
// body. Private to net/http. Single-strand type, as the server.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "gpulet/net/http/server.h"
#include "net/http/http1.h"

namespace gpulet::net::http {

class Acceptance {
 public:
  // Both must outlive it.
  Acceptance(const HttpServerOptions& options, RequestHandler& handler)
      : options_(options), handler_(handler) {}

  // The response that refuses the request; empty: bound_body() comes next. `reserved`: the
  // connection holds a reserved slot. The handler may destroy the server.
  [[nodiscard]] std::optional<HttpResponse> refusal(const RequestReader& request, bool reserved);
  // Finds the limit of the body. The response that refuses it; empty: it is received.
  [[nodiscard]] std::optional<HttpResponse> bound_body(const RequestReader& request);

  // ---- of the last request that came so far
  [[nodiscard]] std::size_t max_body_bytes() const { return max_body_bytes_; }  // also decoded
  // The message for a longer body, with the reason of the limit.
  [[nodiscard]] std::string too_large(std::string message) const;

 private:
  [[nodiscard]] std::optional<HttpResponse> unsupported(const RequestReader& request);

  const HttpServerOptions& options_;
  RequestHandler& handler_;
  std::size_t max_body_bytes_ = 0;
  std::string bound_reason_;  // what the limit follows from; empty: the server's own
};

}  // namespace gpulet::net::http
