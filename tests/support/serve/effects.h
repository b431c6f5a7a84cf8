// What a frontend's core did, as text that a test can compare.
#pragma once

#include <string>
#include <vector>

#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve::testing {

[[nodiscard]] std::vector<std::string> told(const FrontendEffects& effects);

}  // namespace gpulet::serve::testing
