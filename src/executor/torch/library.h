// The only function that the shared library around LibTorch shows (executor/boundary/boundary.h),
// where there is one. What it returns lasts as long as the library. Any thread.
#pragma once

#include "gpulet/executor/boundary/boundary.h"

extern "C" [[gnu::visibility("default")]] const gpulet::executor::boundary::Boundary*
gpulet_torch_boundary();
