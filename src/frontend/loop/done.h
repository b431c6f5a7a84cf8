// Done: what to call, once, when an operation has ended.
#pragma once

#include <functional>

namespace gpulet::frontend {

using Done = std::function<void()>;

}  // namespace gpulet::frontend
