#include "tools/pair_plan.h"

#include <map>

#include "gpulet/core/random.h"

namespace gpulet::tools {
namespace {

constexpr int kWholeDevice = 100;

using Cells = std::map<PairSide, std::vector<std::uint32_t>>;  // batches of each

template <typename T>
bool admits(const std::set<T>& chosen, const T& value) {
  return chosen.empty() || chosen.contains(value);
}

Cells cells_of(const profile::Profile& profile, const PairChoice& choice) {
  Cells cells;
  for (const std::string& name : choice.models) {
    const profile::ModelProfile* const model = profile.find(name);
    if (model == nullptr) continue;
    for (const profile::LatencySample& sample : model->latency.samples()) {
      if (admits(choice.batches, sample.batch) && admits(choice.sizes, sample.share))
        cells[{name, sample.share}].push_back(sample.batch);
    }
  }
  return cells;
}

template <typename T>
void shuffle(std::vector<T>& values, Random& random) {
  for (std::size_t left = values.size(); left > 1; --left)
    std::swap(values[left - 1], values[random.below(left)]);
}

}  // namespace

std::vector<PairGroup> plan_pairs(const profile::Profile& profile, const PairChoice& choice) {
  const Cells cells = cells_of(profile, choice);
  Random random(choice.seed);
  std::vector<PairGroup> groups;
  for (auto first = cells.begin(); first != cells.end(); ++first) {
    for (auto second = first; second != cells.end(); ++second) {
      if (first->first.share.percent + second->first.share.percent > kWholeDevice) continue;
      PairGroup group{first->first, second->first, {}};
      for (const std::uint32_t one : first->second) {
        for (const std::uint32_t other : second->second) {
          // Beside itself, a batch and another are the same pair as the other and the one.
          if (first != second || one <= other) group.batches.emplace_back(one, other);
        }
      }
      shuffle(group.batches, random);
      groups.push_back(std::move(group));
    }
  }
  shuffle(groups, random);
  return groups;
}

}  // namespace gpulet::tools
