// How devices are filled: the columns of `cover`. Plain values, and the way from a plan to them and
// from them to a draft. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "gpulet/schedule/plan.h"
#include "schedule/draft.h"

namespace gpulet::schedule {

// A part of a model's rate, in one gpulet.
struct Portion {
  std::uint32_t model = 0;  // index in Problem::models
  double rate = 0;          // requests per second

  friend bool operator==(const Portion&, const Portion&) = default;
};

struct FilledGpulet {
  std::uint32_t size = 0;  // index in the class's sizes
  std::vector<Portion> portions;

  friend bool operator==(const FilledGpulet&, const FilledGpulet&) = default;
};

// One device.
struct FilledDevice {
  std::uint32_t device_class = 0;
  std::vector<FilledGpulet> gpulets;

  friend bool operator==(const FilledDevice&, const FilledDevice&) = default;
};

// The devices filled so, as far as the draft finds that the rules hold; what does not fit as it is
// said to goes to whoever has room.
[[nodiscard]] Draft draft_of(Problem& problem, const std::vector<FilledDevice>& devices);

}  // namespace gpulet::schedule
