// Inferences whose body is images: one JPEG or PNG, or a form of several. Private to net/kserve.
// Pure; any thread.
#pragma once

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/net/http/message.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/infer_call.h"

namespace gpulet::net::kserve {

// The Content-Type is image/jpeg, image/png or multipart/form-data.
[[nodiscard]] bool has_image_body(const http::Headers& headers);

// One row for each image. Outputs with labels are answered by their highest classes, others as
// JSON. Images are not looked at. Fails with invalid where the model's only input is no encoded
// image, or the form is wrong or has no or too many images. REQUIRES: has_image_body().
[[nodiscard]] Result<InferCall> read_images(const http::Headers& headers, const Bytes& body,
                                            const Model& model);

}  // namespace gpulet::net::kserve
