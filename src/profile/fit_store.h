// The file of a profile's interference fit (profiles/FORMAT.md): text to value and back. Any
// thread.
#pragma once

#include <filesystem>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/profile/interference_fit.h"

namespace gpulet::profile {

// Blocking file I/O. Fails (not_found, invalid) naming file, JSON pointer and mend; whatever is
// read predicts finite numbers.
[[nodiscard]] Result<InterferenceFit> read_fit(const std::filesystem::path& file);

[[nodiscard]] std::string fit_text(const InterferenceFit& fit);

}  // namespace gpulet::profile
