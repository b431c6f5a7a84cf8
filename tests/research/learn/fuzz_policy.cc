// Any bytes as a policy's file are rejected, or are read and written again as the same bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "research/learn/learned_policy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto read = gpulet::learn::parse_policy(bytes, "fuzzed");
  if (!read.ok()) return 0;
  const auto again = gpulet::learn::parse_policy(gpulet::learn::to_bytes(read.value()), "again");
  if (!again.ok() || again.value().task != read.value().task ||
      !(again.value().network == read.value().network))
    std::abort();
  return 0;
}
