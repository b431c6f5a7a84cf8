// Any bytes as the Content-Type and the body of a form: parts within the body, or a reason.
#include <string_view>

#include "net/kserve/multipart.h"
#include "tests/net/kserve/fuzz_inference.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpulet;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t line = input.find('\n');
  const std::string_view type = input.substr(0, line);
  const std::string_view body =
      line == std::string_view::npos ? std::string_view() : input.substr(line + 1);
  constexpr std::size_t kMostParts = 8;
  const auto parts = net::kserve::read_form(type, body, kMostParts);
  using net::kserve::testing::require;
  if (!parts.ok()) {
    require(parts.status().code() == StatusCode::invalid && !parts.status().message().empty());
    return 0;
  }
  require(parts.value().size() <= kMostParts);
  for (const auto& part : parts.value()) {
    require(part.content.data() >= body.data() &&
            part.content.data() + part.content.size() <= body.data() + body.size());
  }
  return 0;
}
