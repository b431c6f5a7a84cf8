// KserveHttp: the Open Inference Protocol over HTTP (docs/protocol.md): what comes through an
// HttpServer is asked of the host behind, and its answers go back. Single-strand type, as the
// server that it handles for and as the host; both and the regions outlive its last call of them.
// What the host still holds when this is gone ends without effect.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gpulet/net/gate.h"
#include "gpulet/net/http/server.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/http_api.h"
#include "gpulet/net/kserve/shared_memory.h"
#include "shared_page.h"

namespace gpulet::frontend {

struct KserveHttpOptions {
  std::string version;  // of this server, as its metadata tells it
  // Counts and limits inferences; null: none does.
  std::shared_ptr<net::Gate> gate{};
};

class KserveHttp final : public net::http::RequestHandler {
 public:
  KserveHttp(net::kserve::ProtocolHost& host, net::kserve::SharedMemory& regions,
             KserveHttpOptions options);

  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override;
  // An inference may have what its model takes, other calls 64 KB or nothing.
  [[nodiscard]] BodyBound body_bound(const net::http::HttpRequest& head) override;
  // All calls but inferences.
  [[nodiscard]] bool may_use_reserve(const net::http::HttpRequest& head) override;
  void on_request(net::http::HttpRequest request,
                  std::unique_ptr<net::http::Exchange> exchange) override;
  [[nodiscard]] net::http::HttpResponse error(unsigned status, const std::string& message) override;

 private:
  struct Inference;

  void infer(std::shared_ptr<const net::kserve::Model> model, const net::http::HttpRequest& request,
             std::unique_ptr<net::http::Exchange> exchange);
  void change_models(const net::kserve::Route& route, const net::http::HttpRequest& request,
                     std::unique_ptr<net::http::Exchange> exchange);
  // What is known at once.
  [[nodiscard]] net::http::HttpResponse answer(const net::kserve::Route& route,
                                               const net::http::HttpRequest& request);
  [[nodiscard]] net::http::HttpResponse log_settings(const net::kserve::Route& route,
                                                     const net::http::HttpRequest& request);
  [[nodiscard]] net::http::HttpResponse trace_settings(const net::kserve::Route& route,
                                                       const net::http::HttpRequest& request);
  [[nodiscard]] net::http::HttpResponse about_model(const net::kserve::Route& route);
  [[nodiscard]] net::http::HttpResponse statistics(const net::kserve::Route& route);
  // Of all models: pages that are written in the background, once for all who ask.
  void statistics_of_all(std::unique_ptr<net::http::Exchange> exchange);
  void index(const net::http::HttpRequest& request, std::unique_ptr<net::http::Exchange> exchange);
  [[nodiscard]] net::http::HttpResponse about_region(const net::kserve::Route& route,
                                                     const net::http::HttpRequest& request);

  net::kserve::ProtocolHost& host_;
  net::kserve::SharedMemory& regions_;
  const KserveHttpOptions options_;
  SharedPage statistics_page_;
  SharedPage index_page_;
  SharedPage ready_index_page_;
  const std::shared_ptr<const bool> here_ = std::make_shared<const bool>(true);  // ends with this
};

}  // namespace gpulet::frontend
