// The status document: docs/status.md.
#pragma once

#include <cstddef>
#include <string>

#include "gpulet/core/time.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

[[nodiscard]] std::string status_json(const serve::FrontendStatus& status, Time started, Time now,
                                      std::size_t clients);

}  // namespace gpulet::frontend
