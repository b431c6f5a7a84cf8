// KserveHttp: the Open Inference Protocol over HTTP (docs/protocol.md). Passes requests to a
// ProtocolHost and writes its answers. Belongs to one strand, as the HttpServer and the host. Host
// and regions must outlive this object. Calls that the host still holds when it is destroyed end
// without effect.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/alive.h"
#include "gpulet/net/gate.h"
#include "gpulet/net/http/server.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/http_api.h"
#include "gpulet/net/kserve/infer_call.h"

namespace gpulet::frontend {

// An HTTP response written in the background, once for each list; requests meanwhile share it.
class SharedPage {
 public:
  using Write = std::function<net::http::HttpResponse()>;

  // Answers with write(), which may run on another thread. `list` identifies the content.
  void answer(net::kserve::ProtocolHost& host, std::shared_ptr<const void> list,
              std::shared_ptr<net::http::Exchange> exchange, Write write);

 private:
  struct Page {
    std::shared_ptr<const void> list;
    bool complete = false;
    net::http::HttpResponse response;
    std::vector<std::shared_ptr<net::http::Exchange>> waiting;
  };
  std::shared_ptr<Page> page_;
};

struct KserveHttpOptions {
  std::string version;  // of this server, for its metadata
  // Counts and limits inferences; null: no limits.
  std::shared_ptr<net::Gate> gate{};
};

class KserveHttp final : public net::http::RequestHandler {
 public:
  KserveHttp(net::kserve::ProtocolHost& host, net::kserve::SharedMemory& regions,
             KserveHttpOptions options);

  [[nodiscard]] std::optional<net::http::HttpResponse> refuse(
      const net::http::HttpRequest& head) override;
  // The largest inference of the model; 64 KB for other calls.
  [[nodiscard]] BodyBound body_bound(const net::http::HttpRequest& head) override;
  // All calls except inferences.
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
  // Calls that are answered at once.
  [[nodiscard]] net::http::HttpResponse answer(const net::kserve::Route& route,
                                               const net::http::HttpRequest& request);
  [[nodiscard]] net::http::HttpResponse log_settings(const net::kserve::Route& route,
                                                     const net::http::HttpRequest& request);
  [[nodiscard]] net::http::HttpResponse trace_settings(const net::kserve::Route& route,
                                                       const net::http::HttpRequest& request);
  [[nodiscard]] net::http::HttpResponse about_model(const net::kserve::Route& route);
  void statistics(const net::kserve::Route& route, std::unique_ptr<net::http::Exchange> exchange);
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
  AliveToken alive_;
};

}  // namespace gpulet::frontend
