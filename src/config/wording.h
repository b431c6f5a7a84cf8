// Small pieces of error messages. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpulet::config {

// In double quotes, control characters escaped, long text cut.
[[nodiscard]] std::string in_quotes(std::string_view text);

// The candidate with the smallest edit distance to `word`; empty where there is no candidate.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       const std::vector<std::string_view>& candidates);

// "a, b, c"
[[nodiscard]] std::string joined(const std::vector<std::string_view>& words);

}  // namespace gpulet::config
