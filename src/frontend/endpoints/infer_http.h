// InferHttp: inferences of the Open Inference Protocol over HTTP (docs/protocol.md). Reads their
// bodies, passes them to an InferenceHost and writes its answers. Belongs to one strand, as the
// connections and the host. Host and regions must outlive this object. Calls that the host still
// holds when it is destroyed end without effect.
#pragma once

#include <memory>
#include <span>

#include "frontend/endpoints/endpoint.h"
#include "gpulet/access/gate.h"
#include "gpulet/base/alive.h"
#include "gpulet/net/http/server.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/infer_call.h"

namespace gpulet::frontend {

class InferHttp final : public EndpointService {
 public:
  // `gate`: counts and limits inferences; null: no limits.
  InferHttp(net::kserve::InferenceHost& host, net::kserve::SharedMemory& regions,
            std::shared_ptr<access::Gate> gate = {});

  [[nodiscard]] std::span<const EndpointRow> rows() const override;

 private:
  struct Inference;

  // The largest inference of the model.
  [[nodiscard]] net::http::RequestHandler::BodyBound infer_bound(const EndpointRoute& route);
  void infer(EndpointCall call);
  void submit(std::shared_ptr<const net::kserve::Model> model,
              const net::http::HttpRequest& request, std::unique_ptr<net::http::Exchange> exchange);

  net::kserve::InferenceHost& host_;
  net::kserve::SharedMemory& regions_;
  const std::shared_ptr<access::Gate> gate_;
  AliveToken alive_;
};

}  // namespace gpulet::frontend
