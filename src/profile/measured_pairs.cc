#include "profile/measured_pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

namespace gpulet::profile {

MeasuredPairs::MeasuredPairs(const std::vector<PairSample>& pairs, const Profile& profile,
                             const SoloTraitsTable& models) {
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const PairSample& pair = pairs[i];
    const ModelProfile* const alone = profile.find(pair.model);
    if (alone == nullptr || profile.find(pair.other_model) == nullptr) continue;
    const std::optional<double> latency_ms = alone->latency.latency_ms(pair.batch, pair.share);
    if (!latency_ms) continue;
    cells_.push_back({.model = models.number_of(pair.model),
                      .other_model = models.number_of(pair.other_model),
                      .key = {std::log2(pair.batch), std::log2(pair.share.percent),
                              std::log2(pair.other_batch), std::log2(pair.other_share.percent)},
                      .order = static_cast<std::uint32_t>(i),
                      .slowdown = std::max(pair.latency_ms / *latency_ms, 1.0),
                      .end = {}});
  }
  const auto place = [](const Cell& cell) {
    return std::tie(cell.model, cell.other_model, cell.key, cell.order);
  };
  std::sort(cells_.begin(), cells_.end(),
            [&place](const Cell& a, const Cell& b) { return place(a) < place(b); });
  for (std::size_t i = cells_.size(); i-- > 0;) {
    Cell& cell = cells_[i];
    bool same = i + 1 < cells_.size() && cell.model == cells_[i + 1].model &&
                cell.other_model == cells_[i + 1].other_model;
    for (std::size_t level = 0; level < kLevels; ++level) {
      same = same && cell.key[level] == cells_[i + 1].key[level];
      cell.end[level] = same ? cells_[i + 1].end[level] : static_cast<std::uint32_t>(i + 1);
    }
  }
}

double MeasuredPairs::slowdown(const Side& self, const Side& other) const {
  const Key wanted{self.log_batch, self.log_percent, other.log_batch, other.log_percent};
  const auto models = std::pair(self.model, other.model);
  auto cell = std::lower_bound(cells_.begin(), cells_.end(), models, [](const Cell& c, auto key) {
    return std::pair(c.model, c.other_model) < key;
  });
  double nearest = std::numeric_limits<double>::infinity();
  const Cell* best = nullptr;
  while (cell != cells_.end() && std::pair(cell->model, cell->other_model) == models) {
    // The distance grows with each level, so cells that share a beginning that is too far are
    // passed over together.
    double away = 0;
    std::size_t level = 0;
    while (level < kLevels) {
      away += std::abs(cell->key[level] - wanted[level]);
      if (away > nearest) break;
      ++level;
    }
    if (level == kLevels) {
      if (away < nearest || cell->order < best->order) {
        nearest = away;
        best = &*cell;
      }
      ++cell;
    } else {
      cell = cells_.begin() + cell->end[level];
    }
  }
  return best == nullptr ? 1 : best->slowdown;
}

}  // namespace gpulet::profile
