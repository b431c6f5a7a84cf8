// Parses any bytes as a trace: the result is a value, or an error that names the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "gpulet/config/cluster_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto trace = gpulet::config::parse_trace(
      std::string(reinterpret_cast<const char*>(data), size), "fuzz.csv");
  if (!trace.ok() && !trace.status().message().starts_with("fuzz.csv")) std::abort();
  return 0;
}
