// Which of several words somebody meant who misspelled one: for "did you mean". Pure; any thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace gpulet {

// How many characters have to be inserted, deleted or replaced to make one of the other. Of long
// words only the first 64 characters are compared, as it costs the product of their lengths.
[[nodiscard]] std::size_t edit_distance(std::string_view from, std::string_view to);

// The candidate with the smallest edit distance to `word`, of several the one that shares the
// longest beginning with it; empty where none is so near that it may have been meant: half of the
// longer one's characters are right, or it begins with `word`.
[[nodiscard]] std::string_view similar(std::string_view word,
                                       const std::vector<std::string_view>& candidates);

}  // namespace gpulet
