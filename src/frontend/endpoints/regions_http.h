// RegionsHttp: regions of shared memory in the Open Inference Protocol over HTTP
// (docs/protocol.md): clients register them, and name them in inferences. Single-strand type, as
// the HttpServer.
#pragma once

#include <span>

#include "frontend/endpoints/endpoint.h"
#include "gpulet/net/kserve/infer_call.h"

namespace gpulet::frontend {

class RegionsHttp final : public EndpointService {
 public:
  // `regions` must outlive this object.
  explicit RegionsHttp(net::kserve::SharedMemory& regions) : regions_(regions) {}

  [[nodiscard]] std::span<const EndpointRow> rows() const override;

 private:
  void all(EndpointCall call);
  void one(EndpointCall call);
  void add(EndpointCall call);
  void remove(EndpointCall call);
  void cuda_all(EndpointCall call);
  void cuda_one(EndpointCall call);
  void cuda_add(EndpointCall call);
  void cuda_remove(EndpointCall call);

  net::kserve::SharedMemory& regions_;
};

}  // namespace gpulet::frontend
