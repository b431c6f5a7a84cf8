// Explains a plan: why each gpulet has its size and place, and why a rate is not served. Derived
// from the plan and its input alone, so it works for the plans of every policy. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// Why a rate is not served.
enum class UnservedCause : std::uint8_t {
  devices = 0,  // the devices are full
  any_device,   // the plan may use no device
  profile,      // no profile of the cluster's device types has the model
  latency,      // no batch meets the SLO
  memory,       // no device that meets the SLO has enough memory
  kept_apart,   // the model must not share a gpulet, and none is free
  chance,       // too many requests would be late by chance (verify/verified_plan.h)
};
// The enumerator's name.
[[nodiscard]] std::string_view to_string(UnservedCause cause);

struct UnservedDetail {
  std::string model;
  double rate = 0;  // unserved requests per second
  UnservedCause cause = UnservedCause::devices;
  double devices = 0;       // how many empty devices would serve the rate; for `devices`
  double least_slo_ms = 0;  // the shortest SLO that a batch meets; for `latency`; 0: unknown
  double memory_mb = 0;     // required memory; for `memory`

  friend bool operator==(const UnservedDetail&, const UnservedDetail&) = default;
};

struct Explanation {
  std::vector<std::string> gpulets;     // parallel to Plan::gpulets: the size, then the place
  std::vector<UnservedDetail> missing;  // parallel to Plan::unserved

  friend bool operator==(const Explanation&, const Explanation&) = default;
};

// REQUIRES: validate(input) is ok, and `plan` was made for `input`.
[[nodiscard]] Explanation explain(const Plan& plan, const PlanInput& input);

}  // namespace gpulet::schedule
