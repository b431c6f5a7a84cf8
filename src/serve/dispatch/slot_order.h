// SlotOrder: some of a gpulet's slots, by a time that each has. Of slots with equal times, the one
// with the lower index comes first. Changing a time costs O(log n), and nothing where it stays the
// same. A value; one thread at a time.
#pragma once

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"

namespace gpulet::serve {

class SlotOrder {
 public:
  using Entry = std::pair<Time, std::size_t>;  // a slot's time and index

  // For slots with the indices 0 to `slots` - 1, none of which is in the order.
  void reset(std::size_t slots) {
    times_.assign(slots, kNever);
    entries_.clear();
  }
  // kNever: the slot is not in the order.
  void set(std::size_t slot, Time time) {
    Time& known = times_[slot];
    if (known == time) return;
    if (known != kNever) entries_.erase({known, slot});
    if (time != kNever) entries_.emplace(time, slot);
    known = time;
  }

  [[nodiscard]] std::set<Entry>::const_iterator begin() const { return entries_.begin(); }
  [[nodiscard]] std::set<Entry>::const_iterator end() const { return entries_.end(); }

 private:
  std::vector<Time> times_;  // by slot
  std::set<Entry> entries_;
};

}  // namespace gpulet::serve
