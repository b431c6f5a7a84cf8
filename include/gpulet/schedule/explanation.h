// What a plan means for those whom it serves, explained and predicted.
//
// Explains a plan: why each gpulet has its size and place, and why a rate is not served. Derived
// from the plan and its input alone, so it works for the plans of every policy. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/schedule/plan.h"
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

// ---- prediction
//
// Predicts which fraction of the requests of a plan's models will violate their SLO by chance: the
// chain of ages (docs/scheduling.md, "Random arrivals") of every model in every gpulet. It knows
// that neighbours are not always busy, that batches are not always full, and the margin that the
// dispatcher reckons with. Pure; any thread.

// By gpulet and assignment, parallel to the plan: the predicted fraction of the assignment's
// requests that are dropped or late, 0 to 1, under Poisson arrivals at its rate. Empty where the
// plan promises nothing (Service) or a profile lacks the batch.
using PredictedViolations = std::vector<std::vector<std::optional<double>>>;

// `input`: what the plan was made from; its profiles give the times of batches and their spread,
// its interference the slowdowns. Each gpulet is predicted by itself: that several gpulets of a
// model share one queue, which mostly helps, is neglected. Takes 1 to 3 ms per device; devices with
// equal gpulets share the result.
[[nodiscard]] PredictedViolations predict_violations(const Plan& plan, const PlanInput& input);

}  // namespace gpulet::schedule
