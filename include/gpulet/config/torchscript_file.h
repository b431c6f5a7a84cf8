// Whether a file is a TorchScript archive, as far as its outside tells: a zip archive whose members
// are those that torch.jit.save writes. What the members hold is not looked at.
#pragma once

#include "gpulet/core/status.h"

namespace gpulet::config {

// Reads the ends of the file with pread. Fails with invalid where it is something else, and with
// unavailable where it cannot be read.
[[nodiscard]] Status check_torchscript(int descriptor);

}  // namespace gpulet::config
