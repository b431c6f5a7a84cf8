#include "frontend/frames/engine_link.h"

#include <fmt/format.h>

#include "gpulet/core/bucket.h"
#include "gpulet/core/tensor.h"

namespace gpulet::frontend {

namespace {

// Admission checks the rest.
Status accepts_length(const serve::ServedModel& model, const InferRequest& request,
                      std::size_t payload_bytes) {
  GPULET_TRY(const std::size_t bytes, byte_size(request.inputs));
  if (bytes == payload_bytes && payload_bytes <= model.input_bytes) return {};
  return {StatusCode::invalid,
          fmt::format("model {} takes at most {} bytes of inputs; the request has {}, and its "
                      "shapes {}",
                      model.name, model.input_bytes, payload_bytes, bytes)};
}

}  // namespace

Status accepts_payload(const serve::ServedModel* model, const InferRequest& request,
                       std::size_t payload_bytes) {
  if (model == nullptr) {
    return {StatusCode::not_found,
            fmt::format("model {} is not loaded; `gpulet models list` shows the loaded models",
                        request.model)};
  }
  if (is_dynamic(model->inputs)) return accepts_length(*model, request, payload_bytes);
  if (model->input_bytes == payload_bytes) return {};
  // Admission looks at the elements.
  if (has_bytes_tensor(model->inputs) && payload_bytes < model->input_bytes) return {};
  return {StatusCode::invalid, fmt::format("model {} takes {} bytes of inputs; the request has {}",
                                           request.model, model->input_bytes, payload_bytes)};
}

Status CorePayloadCheck::accepts(const InferRequest& request, std::size_t payload_bytes) const {
  const std::optional<serve::ModelView> view = core_.model(request.model);
  return accepts_payload(view ? &view->model : nullptr, request, payload_bytes);
}

}  // namespace gpulet::frontend
