// What the frontend answers over HTTP besides the Open Inference Protocol: metrics here, traces of
// requests in trace_handler.h. Single-strand types, as the server that they handle for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gpulet/core/bytes.h"
#include "gpulet/net/http/server.h"

namespace gpulet::frontend {

inline constexpr std::string_view kTracePath = "/gpulet/trace";

// The target without its query.
[[nodiscard]] std::string_view path_of(const net::http::HttpRequest& request);
// GET or HEAD.
[[nodiscard]] bool reads(const net::http::HttpRequest& head);

// GET /metrics, as Prometheus asks for it.
class MetricsHandler final : public net::http::RequestHandler {
 public:
  // Calls back with the page, then or later.
  using OnPage = std::function<void(const Bytes&)>;
  using Metrics = std::function<void(OnPage)>;
  explicit MetricsHandler(Metrics metrics) : metrics_(std::move(metrics)) {}

  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override;
  void on_request(net::http::HttpRequest request,
                  std::unique_ptr<net::http::Exchange> exchange) override;
  [[nodiscard]] net::http::HttpResponse error(unsigned status, const std::string& message) override;

 private:
  Metrics metrics_;
};

}  // namespace gpulet::frontend
