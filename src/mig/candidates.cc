#include "mig/candidates.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace gpulet::mig {
namespace {

// Scores that differ by less are the same.
constexpr double kSame = 1e-9;

std::vector<std::uint32_t> drawn_services(const std::vector<double>& rest, std::size_t count,
                                          Random& random) {
  std::vector<std::uint32_t> lacking;
  for (std::uint32_t service = 0; service < rest.size(); ++service) {
    if (rest[service] > 0) lacking.push_back(service);
  }
  count = std::min(count, lacking.size());
  for (std::size_t at = 0; at < count; ++at)
    std::swap(lacking[at], lacking[at + random.below(lacking.size() - at)]);
  lacking.resize(count);
  return lacking;
}

bool same(const Filled& one, const Filled& other) {
  return one.mix.size == other.mix.size &&
         std::equal(one.mix.slots().begin(), one.mix.slots().end(), other.mix.slots().begin());
}

void shuffle(std::vector<Filled>& found, Random& random) {
  for (std::size_t left = found.size(); left > 1; --left)
    std::swap(found[left - 1], found[random.below(left)]);
}

}  // namespace

std::vector<Filled> candidates(const Problem& problem, const std::vector<double>& rest,
                               const std::vector<double>& worth, std::size_t services,
                               std::size_t most, Random& random) {
  const std::vector<std::uint32_t> drawn = drawn_services(rest, services, random);
  std::vector<Filled> found;
  const auto consider = [&](std::span<const std::uint32_t> chosen) {
    for (const Shape& shape : problem.shapes()) {
      const Filled filled = fill(problem, shape, chosen, rest, worth);
      if (filled.mix.size > 0) found.push_back(filled);
    }
  };
  if (drawn.size() > 2) consider(drawn);
  for (std::size_t one = 0; one < drawn.size(); ++one) {
    consider(std::span(drawn).subspan(one, 1));
    for (std::size_t other = 0; other < one; ++other) {
      const std::uint32_t pair[] = {drawn[one], drawn[other]};
      consider(pair);
    }
  }
  shuffle(found, random);
  std::stable_sort(found.begin(), found.end(), [](const Filled& one, const Filled& other) {
    return one.score > other.score + kSame;
  });
  std::vector<Filled> best;
  for (const Filled& filled : found) {
    if (best.size() == most) break;
    const bool known = std::any_of(best.begin(), best.end(),
                                   [&](const Filled& other) { return same(filled, other); });
    if (!known) best.push_back(filled);
  }
  return best;
}

}  // namespace gpulet::mig
