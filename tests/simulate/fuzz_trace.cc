// Any bytes, read as the trace of a simulated load: a value or a Status with a message.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "gpulet/simulate/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto trace = gpulet::simulate::parse_trace(
      std::string(reinterpret_cast<const char*>(data), size), "fuzz.csv");
  if (!trace.ok() && !trace.status().message().starts_with("fuzz.csv")) std::abort();
  return 0;
}
