// What the core's events are called where a pause of the event loop is told of. Any thread.
#pragma once

#include <string_view>

#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

// A literal.
[[nodiscard]] std::string_view name_of(const serve::FrontendEvent& event);

}  // namespace gpulet::frontend
