// What anybody may send to the HTTP endpoints: the requests of a connection, cut in two ways. The
// first byte says how.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "net/http/coding.h"
#include "tests/net/http/reading.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpulet::net::http;
  if (size == 0) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const testing::Reading whole = testing::read_stream(stream, stream.size() + 1);
  const testing::Reading cut = testing::read_stream(stream, 1U + data[0]);
  // When a head that is wrong is found to be so depends on the cut.
  if (whole.requests != cut.requests) std::abort();
  (void)parse_coding(stream);
  (void)preferred_coding(stream);
  return 0;
}
