// One page of a frontend's HTTP address, for commands that ask and print. Blocking; any thread.
#pragma once

#include <functional>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/load/target.h"

namespace gpulet::load {

// Asked about ten times a second; false gives up.
using StillWanted = std::function<bool()>;

// The body of what is at `path`. Fails with invalid, not_found, unavailable, ... by the status that
// it is answered with, in the answer's words; with unavailable (nobody listens there), timeout,
// malformed (no HTTP) or cancelled (not wanted any more). Names the target.
[[nodiscard]] Result<std::string> fetch_page(const Target& target, const std::string& path,
                                             Duration timeout, const StillWanted& still_wanted);

}  // namespace gpulet::load
