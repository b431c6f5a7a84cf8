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

#include "frontend/endpoints/endpoint.h"
#include "gpulet/access/gate.h"
#include "gpulet/base/alive.h"
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
  std::shared_ptr<access::Gate> gate{};
};

// How the port of the protocol writes an error.
[[nodiscard]] net::http::HttpResponse kserve_error(unsigned status, const std::string& message);

// The answer of a call that has no other result.
[[nodiscard]] net::http::HttpResponse kserve_outcome(const Status& outcome);

// All but the regions of shared memory (RegionsHttp). Refuses every request that is none of the
// protocol, so it is the last service of its port.
class KserveHttp final : public EndpointService {
 public:
  KserveHttp(net::kserve::ProtocolHost& host, net::kserve::SharedMemory& regions,
             KserveHttpOptions options);

  [[nodiscard]] std::span<const EndpointRow> rows() const override;

 private:
  struct Inference;

  // ---- the columns of rows()
  // The largest inference of the model.
  [[nodiscard]] net::http::RequestHandler::BodyBound infer_bound(const EndpointRoute& route);
  [[nodiscard]] std::optional<net::http::HttpResponse> refuse_unknown(
      const EndpointRoute& route, const net::http::HttpRequest& head);
  void infer(EndpointCall call);
  void server_metadata(EndpointCall call);
  void server_live(EndpointCall call);
  void server_ready(EndpointCall call);
  void model_metadata(EndpointCall call);
  void model_ready(EndpointCall call);
  void model_config(EndpointCall call);
  void statistics(EndpointCall call);
  void statistics_of_all(EndpointCall call);
  void index(EndpointCall call);
  void load(EndpointCall call);
  void unload(EndpointCall call);
  void log_settings(EndpointCall call);
  void change_log_settings(EndpointCall call);
  void trace_settings(EndpointCall call);
  void change_trace_settings(EndpointCall call);
  void change_model_trace_settings(EndpointCall call);

  // ---- what they share
  void submit(std::shared_ptr<const net::kserve::Model> model,
              const net::http::HttpRequest& request, std::unique_ptr<net::http::Exchange> exchange);
  // Calls finish(outcome).
  template <typename Finish>
  void change_models(Result<ModelsChange> change, Finish finish);
  // Answers with write(model).
  template <typename Write>
  void about_model(EndpointCall call, Write write);

  net::kserve::ProtocolHost& host_;
  net::kserve::SharedMemory& regions_;
  const KserveHttpOptions options_;
  SharedPage statistics_page_;
  SharedPage index_page_;
  SharedPage ready_index_page_;
  AliveToken alive_;
};

}  // namespace gpulet::frontend
