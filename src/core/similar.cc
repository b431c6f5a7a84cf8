#include "gpulet/core/similar.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gpulet {
namespace {

constexpr std::size_t kLongestCompared = 64;
// Fewer letters are no beginning of anything in particular.
constexpr std::size_t kShortestBeginning = 3;

bool may_be_meant(std::string_view word, std::string_view candidate) {
  if (word.size() >= kShortestBeginning && candidate.starts_with(word)) return true;
  return 2 * edit_distance(word, candidate) <= std::max(word.size(), candidate.size());
}

}  // namespace

std::size_t edit_distance(std::string_view from, std::string_view to) {
  from = from.substr(0, kLongestCompared);
  to = to.substr(0, kLongestCompared);
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::string_view similar(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  std::pair<std::size_t, std::size_t> best_rank;
  for (const std::string_view candidate : candidates) {
    if (!may_be_meant(word, candidate)) continue;
    const auto differ =
        std::mismatch(word.begin(), word.end(), candidate.begin(), candidate.end()).first;
    const auto shared = static_cast<std::size_t>(differ - word.begin());
    const std::pair rank(edit_distance(word, candidate), word.size() - shared);
    if (!best.empty() && rank >= best_rank) continue;
    best = candidate;
    best_rank = rank;
  }
  return best;
}

}  // namespace gpulet
