// Whether a request's payload is one that its model takes, before memory is reserved for it.
#pragma once

#include <cstddef>

#include "gpulet/core/status.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

// Fails with not_found (no such model) or invalid (its inputs have another size).
[[nodiscard]] Status takes_payload(const serve::FrontendCore& core,
                                   const serve::InferRequest& request, std::size_t payload_bytes);

}  // namespace gpulet::frontend
