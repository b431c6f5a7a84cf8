// The lines of a file of tokens (tokens.h tells the format). Private to net; pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpulet/net/tokens.h"

namespace gpulet::net {

struct TokenLine {
  Token token;       // without its digest
  std::string text;  // the token itself
};

// One at least. Fails with invalid, naming file and line.
[[nodiscard]] Result<std::vector<TokenLine>> read_token_lines(std::string_view text,
                                                              const std::string& file, Right right);

// Whether `name` is matched by `pattern`: * stands for any characters, ? for one. Takes time in
// proportion to both lengths at most.
[[nodiscard]] bool matches(std::string_view pattern, std::string_view name);

}  // namespace gpulet::net
