// Squishy bin packing (sbp.cc) on devices split into two equal parts, gpulet (ATC 2022) section
// 3.2: "a GPU is split into two partitions with the same resource in each partition". Every half is
// a device of its own to the packing.
//
// Choices where the paper leaves one:
//  - A half is the largest size listed that is there twice in a device: 50 where that is listed,
//    else the nearest below it.
//  - A device that lists no such size, or allows one gpulet only, is used whole.
//  - Nothing is taken beyond the two halves: a device that lists 40 keeps 20 % idle, and no half
//    grows into an idle one.
#include "schedule/sbp_split.h"

#include "schedule/finish.h"
#include "schedule/sbp.h"

namespace gpulet::schedule {
namespace {

std::vector<EqualParts> halves(const Problem& problem) {
  std::vector<EqualParts> division = whole_devices(problem);
  for (std::size_t index = 0; index < division.size(); ++index) {
    const DeviceClass& device_class = problem.classes()[index];
    if (device_class.example->max_partitions < 2) continue;
    for (std::uint32_t size = 0; size < device_class.sizes.size(); ++size) {
      if (2 * device_class.sizes[size] <= kWholeDevice.percent) division[index] = {size, 2};
    }
  }
  return division;
}

}  // namespace

Plan SplitSquishyBinPacking::plan(const PlanInput& input) const {
  Problem problem(input);
  return finish(name(), pack(problem, halves(problem)));
}

}  // namespace gpulet::schedule
