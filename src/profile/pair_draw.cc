#include "profile/pair_draw.h"

#include <cmath>
#include <utility>

#include "gpulet/core/random.h"

namespace gpulet::profile {

std::optional<double> pair_slowdown(const Profile& profile, const PairSample& pair) {
  const ModelProfile* const self = profile.find(pair.model);
  const ModelProfile* const other = profile.find(pair.other_model);
  if (self == nullptr || other == nullptr) return std::nullopt;
  const std::optional<double> alone_ms = self->latency.latency_ms(pair.batch, pair.share);
  if (!alone_ms || !other->latency.latency_ms(pair.other_batch, pair.other_share)) {
    return std::nullopt;
  }
  const double slowdown = pair.latency_ms / *alone_ms;
  if (!std::isnormal(slowdown)) return std::nullopt;
  return slowdown;
}

std::vector<std::size_t> drawn_order(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  Random random(stream_seed(seed, "pairs"));
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

InssModel fit_inss(const Profile& profile, std::uint64_t seed) {
  std::vector<const PairSample*> usable;
  for (const PairSample& pair : profile.pairs) {
    if (pair_slowdown(profile, pair)) usable.push_back(&pair);
  }
  std::vector<const PairSample*> drawn;
  drawn.reserve(usable.size());
  for (const std::size_t number : drawn_order(usable.size(), seed)) {
    drawn.push_back(usable[number]);
  }
  return fit_inss_to(profile, drawn);
}

}  // namespace gpulet::profile
