// The chains of ages of all models of one device, each of which needs the others: a neighbour slows
// a batch down while it runs, and models that share a gpulet take turns. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpulet/profile/interference.h"
#include "gpulet/schedule/plan.h"
#include "schedule/age_chain.h"

namespace gpulet::schedule {

// A model in a gpulet.
struct Lane {
  const Assignment* assignment = nullptr;
  double rate = 0;                           // per ms
  std::vector<double> alone_ms;              // [n - 1]: the mean time of a batch alone
  std::vector<double> expected_ms;           // [n - 1]: what the dispatcher reckons with
  std::vector<double> cv;                    // [n - 1]
  std::vector<std::uint32_t> sizes;          // batches at which slowdowns are looked up, ascending
  std::vector<profile::BatchTraits> traits;  // parallel to sizes
  // [n - 1]: the slowdown by the neighbours when a batch of n starts.
  std::vector<std::vector<TimePoint>> slowdown;
  std::vector<double> mean_ms;   // [n - 1]: with the mean slowdown
  std::vector<double> variance;  // [n - 1]: of the slowdown and of the times
  std::vector<double> most_ms;   // [n - 1]

  SlotOutcome outcome;
  double busy = 0;  // part of the time that its batches run

  [[nodiscard]] std::size_t batch() const { return alone_ms.size(); }
};

struct LaneGroup {        // one gpulet
  std::size_t index = 0;  // among those of the device
  double duty_cycle_ms = 0;
  // Processes of an instance that take batches from one queue in turns. The lane then has the rate
  // of all, and the duty cycle is the time between two batches of a full instance.
  double turns = 1;
  std::vector<Lane> lanes;
};

// Solves the chains; the outcomes are in the lanes. `interference`: null where neighbours slow
// nobody down. REQUIRES: a lane in every group.
void solve_device(std::vector<LaneGroup>& groups, const profile::InterferenceModel* interference);

}  // namespace gpulet::schedule
