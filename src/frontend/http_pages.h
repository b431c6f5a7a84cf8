// What the frontend answers over HTTP besides the Open Inference Protocol: metrics, and traces of
// requests (docs/tracing.md). Single-strand types, as the server that they handle for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gpulet/net/http/server.h"
#include "trace_log.h"

namespace gpulet::frontend {

inline constexpr std::string_view kTracePath = "/gpulet/trace";

// The target without its query.
[[nodiscard]] std::string_view path_of(const net::http::HttpRequest& request);
// GET or HEAD.
[[nodiscard]] bool reads(const net::http::HttpRequest& head);

// GET /metrics, as Prometheus asks for it.
class MetricsHandler final : public net::http::RequestHandler {
 public:
  explicit MetricsHandler(std::function<std::string()> metrics) : metrics_(std::move(metrics)) {}

  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override;
  void on_request(net::http::HttpRequest request,
                  std::unique_ptr<net::http::Exchange> exchange) override;
  [[nodiscard]] net::http::HttpResponse error(unsigned status, const std::string& message) override;

 private:
  std::function<std::string()> metrics_;
};

// GET /gpulet/trace?seconds=S&format=chrome|log|applications; everything else is another handler's.
class TraceHandler final : public net::http::RequestHandler {
 public:
  using Trace = std::function<void(Duration length, TraceLog::OnRecords)>;
  using Clock = std::function<observe::WallClock()>;

  TraceHandler(Trace trace, Clock wall_clock, std::unique_ptr<net::http::RequestHandler> others)
      : trace_(std::move(trace)), wall_clock_(std::move(wall_clock)), others_(std::move(others)) {}

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
  Trace trace_;
  Clock wall_clock_;
  std::unique_ptr<net::http::RequestHandler> others_;
};

}  // namespace gpulet::frontend
