#include "schedule/mig/arrangement.h"

#include <algorithm>
#include <stdexcept>

namespace gpulet::schedule {
namespace {

// Places instances from the first memory slice to the last, trying first what runs there.
class Arrangement {
 public:
  Arrangement(const partition::MigGeometry& geometry, const InstanceKinds& wanted,
              const std::vector<PlacedInstance>& running)
      : geometry_(geometry), left_(wanted) {
    for (const PlacedInstance& placed : running)
      running_[placed.instance.start] = {placed.instance.slices, placed.content};
    for (const auto& [kind, count] : wanted) count_ += count;
  }

  std::vector<PlacedInstance> run() {
    place_from(0);
    if (best_.size() != count_) throw std::logic_error("MIG instances without a legal layout");
    return std::move(best_);
  }

 private:
  [[nodiscard]] bool runs_at(const InstanceKind& kind, std::uint32_t start) const {
    const auto there = running_.find(start);
    return there != running_.end() && there->second == kind;
  }

  // At most, of what is still to be placed.
  [[nodiscard]] std::size_t could_keep(std::uint32_t start) const {
    InstanceKinds there;
    for (auto at = running_.lower_bound(start); at != running_.end(); ++at) ++there[at->second];
    std::size_t kept = 0;
    for (const auto& [kind, count] : left_) {
      const auto found = there.find(kind);
      if (found != there.end()) kept += std::min(count, found->second);
    }
    return kept;
  }

  void place_from(std::uint32_t start) {
    if (found_ && kept_ + could_keep(start) <= best_kept_) return;
    if (placed_.size() == count_) {
      best_ = placed_;
      best_kept_ = kept_;
      found_ = true;
      return;
    }
    if (start >= geometry_.memory_slices()) return;
    for (const InstanceKind& kind : kinds_by_likeness(start)) try_at(start, kind);
    place_from(start + 1);
  }

  [[nodiscard]] std::vector<InstanceKind> kinds_by_likeness(std::uint32_t start) const {
    std::vector<InstanceKind> kinds;
    for (const auto& [kind, count] : left_) {
      if (count > 0 && geometry_.exists({kind.slices, start})) kinds.push_back(kind);
    }
    std::stable_partition(kinds.begin(), kinds.end(),
                          [&](const InstanceKind& kind) { return runs_at(kind, start); });
    return kinds;
  }

  void try_at(std::uint32_t start, const InstanceKind& kind) {
    const std::size_t keeps = runs_at(kind, start) ? 1 : 0;
    --left_[kind];
    placed_.push_back({{kind.slices, start}, kind.content});
    kept_ += keeps;
    place_from(start + geometry_.find(kind.slices)->memory_slices);
    kept_ -= keeps;
    placed_.pop_back();
    ++left_[kind];
  }

  const partition::MigGeometry& geometry_;
  InstanceKinds left_;
  std::map<std::uint32_t, InstanceKind> running_;  // by start
  std::size_t count_ = 0;
  std::vector<PlacedInstance> placed_;
  std::size_t kept_ = 0;
  std::vector<PlacedInstance> best_;
  std::size_t best_kept_ = 0;
  bool found_ = false;
};

}  // namespace

std::vector<PlacedInstance> arrange(const partition::MigGeometry& geometry,
                                    const InstanceKinds& wanted,
                                    const std::vector<PlacedInstance>& running) {
  return Arrangement(geometry, wanted, running).run();
}

}  // namespace gpulet::schedule
