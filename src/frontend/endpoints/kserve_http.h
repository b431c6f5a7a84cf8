// KserveHttp: the Open Inference Protocol over HTTP (docs/protocol.md), but for inferences
// (infer_http.h). Passes requests to a ProtocolHost and writes its answers. Belongs to one strand,
// as the host. Host and regions must outlive this object. Calls that the host still holds when it
// is destroyed end without effect.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontend/endpoints/endpoint.h"
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

// How the port of the protocol writes an error.
[[nodiscard]] net::http::HttpResponse kserve_error(unsigned status, const std::string& message);

// The answer of a call that has no other result.
[[nodiscard]] net::http::HttpResponse kserve_outcome(const Status& outcome);

// All but inferences and the regions of shared memory (RegionsHttp). Refuses every request that is
// none of the protocol, so it is the last service of its port.
class KserveHttp final : public EndpointService {
 public:
  // `version`: of this server, for its metadata.
  KserveHttp(net::kserve::ProtocolHost& host, const net::kserve::SharedMemory& regions,
             std::string version);

  [[nodiscard]] std::span<const EndpointRow> rows() const override;

 private:
  // ---- the columns of rows()
  [[nodiscard]] std::optional<net::http::HttpResponse> refuse_unknown(
      const EndpointRoute& route, const net::http::HttpRequest& head);
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
  // Calls finish(outcome).
  template <typename Finish>
  void change_models(Result<ModelsChange> change, Finish finish);
  // Answers with write(model).
  template <typename Write>
  void about_model(EndpointCall call, Write write);

  net::kserve::ProtocolHost& host_;
  const net::kserve::SharedMemory& regions_;
  const std::string version_;
  SharedPage statistics_page_;
  SharedPage index_page_;
  SharedPage ready_index_page_;
  AliveToken alive_;
};

}  // namespace gpulet::frontend
