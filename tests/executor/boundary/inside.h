// The functions that the test's shared library exports. It is compiled with the other C++ ABI.
#pragma once

#include "gpulet/executor/boundary/boundary.h"

extern "C" {

[[gnu::visibility("default")]] const gpulet::executor::boundary::Boundary* test_boundary();

// A boundary with the stamp of other headers.
[[gnu::visibility("default")]] const gpulet::executor::boundary::Boundary*
test_boundary_of_another_version();

// The library's _GLIBCXX_USE_CXX11_ABI.
[[gnu::visibility("default")]] int test_boundary_abi();
}
