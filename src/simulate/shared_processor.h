// SharedProcessor: what a process executes that runs all of its batches at the same time, each on
// an equal part of its cores (processor sharing, as the threads of a server of requests have it). A
// batch that shares the cores takes as long as alone on its part, and the rest of it is stretched
// or shortened when the part changes. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gpulet/base/time.h"

namespace gpulet::simulate {

class SharedProcessor {
 public:
  // How long a batch takes alone on so many cores. Above zero.
  using TimeOn = std::function<Duration(double cores)>;

  // REQUIRES: cores > 0, here and below. Times never go back.
  explicit SharedProcessor(double cores) : cores_(cores) {}

  void set_cores(double cores, Time now);
  // REQUIRES: no batch has this id.
  void add(std::uint64_t id, TimeOn time_on, Time now);

  [[nodiscard]] bool idle() const { return batches_.empty(); }
  // When the next batch ends if nothing changes; kNever where it is idle.
  [[nodiscard]] Time next_end() const;
  struct Ended {
    std::uint64_t id = 0;
    Duration took{};
  };
  // Removes the batch that ends next. Of those that end together, the one that was added first.
  // REQUIRES: not idle; now is next_end().
  Ended take_ended(Time now);

 private:
  struct Batch {
    std::uint64_t id = 0;
    TimeOn time_on;
    Time began{};
    double left = 1;     // part of its work
    double whole_s = 0;  // all of its work on the present part of the cores
  };
  // Accounts for the time since the last change.
  void work_until(Time now);
  // The parts of the cores have changed.
  void divide();

  double cores_;
  Time worked_until_{};
  std::vector<Batch> batches_;  // in the order in which they were added
};

}  // namespace gpulet::simulate
