// What the test's shared library shows. It is compiled with the other C++ ABI than the test is.
#pragma once

#include "gpulet/executor/boundary/boundary.h"

extern "C" {

[[gnu::visibility("default")]] const gpulet::executor::boundary::Boundary* test_boundary();

// One that was compiled from other headers.
[[gnu::visibility("default")]] const gpulet::executor::boundary::Boundary*
test_boundary_of_another_version();

// _GLIBCXX_USE_CXX11_ABI in there.
[[gnu::visibility("default")]] int test_boundary_abi();
}
