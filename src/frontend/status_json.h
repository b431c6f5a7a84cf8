// The status document: docs/status.md.
#pragma once

#include <string>

#include "gpulet/serve/frontend_status.h"
#include "status_moment.h"

namespace gpulet::frontend {

[[nodiscard]] std::string status_json(const serve::FrontendStatus& status,
                                      const StatusMoment& moment);

}  // namespace gpulet::frontend
