// Deadlines: a set of ids, each with a deadline, ordered by deadline. Adding, removing and finding
// the earliest cost O(log n). Pure; one thread at a time.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"

namespace gpulet::serve {

template <typename Id>
class Deadlines {
 public:
  // An id with kNever is not kept. REQUIRES: `id` is not in the set with that deadline.
  void add(Time by, Id id) {
    if (by != kNever) entries_.emplace(by, id);
  }
  void remove(Time by, Id id) { entries_.erase({by, id}); }

  // When take_passed() next returns an id, just after the deadline; kNever: the set is empty.
  [[nodiscard]] Time next() const {
    return entries_.empty() ? kNever : entries_.begin()->first + Duration(1);
  }
  // Removes and returns the ids whose deadline is before `now`, the earliest first.
  [[nodiscard]] std::vector<Id> take_passed(Time now) {
    std::vector<Id> passed;
    while (!entries_.empty() && entries_.begin()->first < now) {
      passed.push_back(entries_.begin()->second);
      entries_.erase(entries_.begin());
    }
    return passed;
  }

 private:
  std::set<std::pair<Time, Id>> entries_;
};

}  // namespace gpulet::serve
