#include "payload_check.h"

#include <string>

namespace gpulet::frontend {

Status takes_payload(const serve::FrontendCore& core, const serve::InferRequest& request,
                     std::size_t payload_bytes) {
  const std::optional<serve::ModelView> view = core.model(request.model);
  if (!view) {
    return {StatusCode::not_found,
            "model " + request.model + " is not served here; `gpulet models list` shows which are"};
  }
  if (view->model.input_bytes == payload_bytes) return {};
  return {StatusCode::invalid,
          "model " + request.model + " takes " + std::to_string(view->model.input_bytes) +
              " bytes of inputs; the request has " + std::to_string(payload_bytes)};
}

}  // namespace gpulet::frontend
