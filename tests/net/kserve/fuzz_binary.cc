// Any bytes as an inference with binary tensors: the header's value up to the first line's end,
// then the body. A value of "=" means the place of the first "}\n".
#include "tests/net/kserve/fuzz_inference.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\n');
  if (end == std::string_view::npos) return 0;
  std::string value(input.substr(0, end));
  const std::string_view body = input.substr(end + 1);
  if (value == "=") value = std::to_string(std::min(body.find("}\n"), body.size() - 1) + 1);
  gpulet::net::kserve::testing::read_and_answer({{"Inference-Header-Content-Length", value}}, body);
  return 0;
}
