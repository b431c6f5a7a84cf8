// Any bytes, read as a file of tokens: tokens that are what the format allows, or a Status that
// names the file; and any bytes as the value of an Authorization header.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gpulet/access/tokens.h"

namespace {

using gpulet::access::Right;
using gpulet::access::Token;

void expect(bool holds) {
  if (!holds) std::abort();
}

void look_at(const Token& token, std::string_view text) {
  expect(!token.name.empty() && token.name.size() <= 64);
  expect(token.limits.requests_per_s >= 0 && token.limits.device_ms_per_s >= 0);
  for (const std::string& pattern : token.models) expect(!pattern.empty());
  (void)token.may_use(text.substr(0, 256));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Right right : {Right::observe, Right::inference, Right::admin}) {
    const auto tokens = gpulet::access::parse_tokens(text, "fuzz.tokens", right);
    if (!tokens.ok()) {
      expect(tokens.status().message().starts_with("fuzz.tokens:"));
      continue;
    }
    expect(!tokens.value().empty());
    for (const Token& token : tokens.value()) {
      expect(token.right == right);
      look_at(token, text);
    }
  }
  const std::string shown = gpulet::access::token_of(text);
  expect(shown.size() <= text.size());
  return 0;
}
