#include "schedule/layouts.h"

#include <algorithm>

namespace gpulet::schedule {
namespace {

class LayoutSearch {
 public:
  static constexpr std::size_t kStepsPerLayout = 100;

  LayoutSearch(const DeviceClass& device_class, std::size_t limit)
      : sizes_(device_class.sizes),
        most_parts_(device_class.example->max_partitions),
        limit_(limit) {}

  std::optional<std::vector<Layout>> run() {
    extend(static_cast<std::uint32_t>(sizes_.size()), kWholeDevice.percent);
    if (too_many()) return std::nullopt;
    return std::move(found_);
  }

 private:
  // Adds parts no larger than those that are there.
  void extend(std::uint32_t below, int free_percent) {
    ++steps_;
    if (is_maximal(free_percent)) found_.push_back(parts_);
    if (parts_.size() == most_parts_) return;
    for (std::uint32_t size = below; size-- > 0 && !too_many();) {
      if (sizes_[size] > free_percent) continue;
      parts_.push_back(size);
      extend(size + 1, free_percent - sizes_[size]);
      parts_.pop_back();
    }
  }

  // A long search that finds little is as good as one that finds too much.
  [[nodiscard]] bool too_many() const {
    return found_.size() > limit_ || steps_ > kStepsPerLayout * limit_;
  }

  [[nodiscard]] bool is_maximal(int free_percent) const {
    if (parts_.size() < most_parts_ && sizes_.front() <= free_percent) return false;
    return std::none_of(parts_.begin(), parts_.end(), [&](std::uint32_t size) {
      return size + 1 < sizes_.size() && sizes_[size + 1] - sizes_[size] <= free_percent;
    });
  }

  const std::vector<int>& sizes_;
  const std::size_t most_parts_;
  const std::size_t limit_;
  std::size_t steps_ = 0;
  Layout parts_;
  std::vector<Layout> found_;
};

// Multisets of `count` out of `kinds`.
double multisets(std::size_t kinds, std::size_t count) {
  double result = 1;
  for (std::size_t step = 1; step <= count; ++step) {
    result *= static_cast<double>(kinds - 1 + step) / static_cast<double>(step);
  }
  return result;
}

class CombinationSearch {
 public:
  CombinationSearch(const Problem& problem, const std::vector<std::vector<Layout>>& layouts,
                    const std::function<bool(const Combination& combination)>& visit)
      : problem_(problem), layouts_(layouts), visit_(visit) {}

  // The devices of the classes from `device_class` on; whether a visit returned true.
  bool from_class(std::size_t device_class, std::size_t budget) {
    if (device_class == problem_.classes().size()) return budget == 0 && visit_(combination_);
    const std::size_t there = problem_.classes()[device_class].devices.size();
    std::size_t behind = 0;
    for (std::size_t index = device_class + 1; index < problem_.classes().size(); ++index) {
      behind += problem_.classes()[index].devices.size();
    }
    const std::size_t least = budget > behind ? budget - behind : 0;
    for (std::size_t count = std::min(there, budget) + 1; count-- > least;) {
      if (divide(device_class, count, 0, budget - count)) return true;
    }
    return false;
  }

 private:
  // `count` more devices of the class, with layouts from `layout` on.
  bool divide(std::size_t device_class, std::size_t count, std::size_t layout, std::size_t budget) {
    if (count == 0) return from_class(device_class + 1, budget);
    for (std::size_t index = layout; index < layouts_[device_class].size(); ++index) {
      combination_.push_back(
          {static_cast<std::uint32_t>(device_class), &layouts_[device_class][index]});
      const bool found = divide(device_class, count - 1, index, budget);
      combination_.pop_back();
      if (found) return true;
    }
    return false;
  }

  const Problem& problem_;
  const std::vector<std::vector<Layout>>& layouts_;
  const std::function<bool(const Combination& combination)>& visit_;
  Combination combination_;
};

}  // namespace

std::optional<std::vector<Layout>> maximal_layouts(const DeviceClass& device_class,
                                                   std::size_t limit) {
  return LayoutSearch(device_class, limit).run();
}

double count_combinations(const Problem& problem, const std::vector<std::vector<Layout>>& layouts) {
  // counts[n]: combinations of n devices of the classes so far.
  const std::size_t budget = problem.device_budget();
  std::vector<double> counts(budget + 1, 0);
  counts[0] = 1;
  for (std::size_t index = 0; index < layouts.size(); ++index) {
    std::vector<double> next(budget + 1, 0);
    const std::size_t there = problem.classes()[index].devices.size();
    for (std::size_t count = 0; count <= std::min(there, budget); ++count) {
      const double ways = multisets(layouts[index].size(), count);
      for (std::size_t before = 0; before + count <= budget; ++before) {
        next[before + count] += counts[before] * ways;
      }
    }
    counts = std::move(next);
  }
  return counts[budget];
}

bool any_combination(const Problem& problem, const std::vector<std::vector<Layout>>& layouts,
                     const std::function<bool(const Combination& combination)>& visit) {
  return CombinationSearch(problem, layouts, visit).from_class(0, problem.device_budget());
}

}  // namespace gpulet::schedule
