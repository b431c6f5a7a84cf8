#include "tools/measure/pair_plan.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "gpulet/base/random.h"

namespace gpulet::tools {
namespace {

constexpr int kWholeDevice = 100;

using Cells = std::map<PairSide, std::vector<std::uint32_t>>;  // the batches of each side

template <typename T>
bool is_chosen(const std::set<T>& chosen, const T& value) {
  return chosen.empty() || chosen.contains(value);
}

Cells cells_of(const profile::Profile& profile, const PairChoice& choice) {
  Cells cells;
  for (const std::string& name : choice.models) {
    const profile::ModelProfile* const model = profile.find(name);
    if (model == nullptr) continue;
    for (const profile::LatencySample& sample : model->latency.samples()) {
      if (is_chosen(choice.batches, sample.batch) && is_chosen(choice.sizes, sample.share))
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

// One measured direction of a pair.
using Direction = std::tuple<PairSide, std::uint32_t, PairSide, std::uint32_t>;

std::vector<PairVisit> visits_of(const std::vector<PairGroup>& groups) {
  std::vector<PairVisit> visits;
  for (const PairGroup& group : groups) {
    const PairGpulet second{group.second, group.first == group.second ? 1 : 0};
    for (const auto& [one, other] : group.batches)
      visits.push_back({{group.first, 0}, second, one, other});
  }
  return visits;
}

// A model's own two copies stay in one block, so that one of two blocks is enough for them.
using Block = std::set<PairGpulet>;

double memory_of(const Block& block, const NeedOfModel& need_mb) {
  double sum = 0;
  for (const PairGpulet& gpulet : block) sum += need_mb(gpulet.side.model);
  return sum;
}

bool fits(const Block& block, const ParkingSpace& space, const NeedOfModel& need_mb) {
  return block.size() <= space.gpulets &&
         (space.memory_mb <= 0 || memory_of(block, need_mb) <= space.memory_mb);
}

// The gpulets of the visits, those of one side together, in the order of the first visit.
std::vector<Block> sides_of(const std::vector<PairVisit>& visits) {
  std::vector<Block> sides;
  std::map<PairSide, std::size_t> index;
  for (const PairVisit& visit : visits) {
    for (const PairGpulet& gpulet : {visit.first, visit.second}) {
      const auto [found, added] = index.emplace(gpulet.side, sides.size());
      if (added) sides.emplace_back();
      sides[found->second].insert(gpulet);
    }
  }
  return sides;
}

// The copies of one side exceed half a block only where a device holds fewer than four gpulets.
std::vector<Block> blocks_of(const std::vector<Block>& sides, const ParkingSpace& space,
                             const NeedOfModel& need_mb) {
  const ParkingSpace half{space.gpulets / 2, space.memory_mb / 2};
  std::vector<Block> blocks;
  for (const Block& side : sides) {
    Block larger = blocks.empty() ? Block() : blocks.back();
    larger.insert(side.begin(), side.end());
    if (!blocks.empty() && fits(larger, half, need_mb)) {
      blocks.back() = std::move(larger);
    } else {
      blocks.push_back(side);
    }
  }
  return blocks;
}

// The round with these visits. Only gpulets that a visit needs are loaded.
PairRound round_of(std::vector<PairVisit> visits) {
  PairRound round;
  for (const PairVisit& visit : visits) {
    round.gpulets.insert(visit.first);
    round.gpulets.insert(visit.second);
  }
  round.visits = std::move(visits);
  return round;
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
          // For a side beside itself, (a, b) and (b, a) are the same pair.
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

std::size_t count_pairs(const std::vector<PairGroup>& groups) {
  std::size_t count = 0;
  for (const PairGroup& group : groups) count += group.batches.size();
  return count;
}

std::vector<PairGroup> without_measured(std::vector<PairGroup> groups,
                                        const std::vector<profile::PairSample>& measured) {
  std::set<Direction> known;
  for (const profile::PairSample& pair : measured) {
    known.emplace(PairSide{pair.model, pair.share}, pair.batch,
                  PairSide{pair.other_model, pair.other_share}, pair.other_batch);
  }
  for (PairGroup& group : groups) {
    std::erase_if(group.batches, [&](const std::pair<std::uint32_t, std::uint32_t>& batches) {
      return known.contains({group.first, batches.first, group.second, batches.second}) &&
             known.contains({group.second, batches.second, group.first, batches.first});
    });
  }
  std::erase_if(groups, [](const PairGroup& group) { return group.batches.empty(); });
  return groups;
}

std::vector<PairRound> plan_rounds(const std::vector<PairGroup>& groups, const ParkingSpace& space,
                                   const NeedOfModel& need_mb, std::uint64_t seed) {
  std::vector<PairVisit> visits = visits_of(groups);
  Random random(seed);
  shuffle(visits, random);
  if (visits.empty()) return {};
  PairRound all = round_of(visits);
  if (fits(all.gpulets, space, need_mb)) return {std::move(all)};

  const std::vector<Block> blocks = blocks_of(sides_of(visits), space, need_mb);
  std::map<PairSide, std::size_t> block_of;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const PairGpulet& gpulet : blocks[i]) block_of[gpulet.side] = i;
  }
  std::map<std::pair<std::size_t, std::size_t>, std::vector<PairVisit>> by_blocks;
  for (const PairVisit& visit : visits)
    by_blocks[std::minmax(block_of[visit.first.side], block_of[visit.second.side])].push_back(
        visit);
  std::vector<PairRound> rounds;
  for (auto& [two, between] : by_blocks) rounds.push_back(round_of(std::move(between)));
  shuffle(rounds, random);
  return rounds;
}

}  // namespace gpulet::tools
