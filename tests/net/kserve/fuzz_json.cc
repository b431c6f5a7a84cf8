// Any bytes as an inference's JSON.
#include "tests/net/kserve/fuzz_inference.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gpulet::net::kserve::testing::read_and_answer({}, {reinterpret_cast<const char*>(data), size});
  return 0;
}
