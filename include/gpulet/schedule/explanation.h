// Why a plan is as it is: why each gpulet has its size and its place, and what a rate without a
// place lacks. Derived from the plan and its input alone, so it covers the plans of every policy.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// What keeps a rate from having a place.
enum class Lack : std::uint8_t {
  devices = 0,  // the devices are full
  any_device,   // no device may be used at all
  profile,      // no profile of the devices' types has the model
  latency,      // no batch meets the SLO
  memory,       // no device that meets the SLO has enough of it
  kept_apart,   // the model must not share a gpulet, and no gpulet is free
};
// As written above.
[[nodiscard]] std::string_view to_string(Lack lack);

struct MissingPlace {
  std::string model;
  double rate = 0;  // requests per second without a place
  Lack lack = Lack::devices;
  // How many empty devices would take the rate, where the devices are full.
  double devices = 0;
  double least_slo_ms = 0;  // that some batch meets, where none meets the model's; 0: unknown
  double memory_mb = 0;     // that the model needs, where it is too much

  friend bool operator==(const MissingPlace&, const MissingPlace&) = default;
};

struct Explanation {
  std::vector<std::string> gpulets;   // beside Plan::gpulets: sentences on size, then place
  std::vector<MissingPlace> missing;  // beside Plan::unserved

  friend bool operator==(const Explanation&, const Explanation&) = default;
};

// REQUIRES: validate(input) is ok, and the plan was made for it.
[[nodiscard]] Explanation explain(const Plan& plan, const PlanInput& input);

}  // namespace gpulet::schedule
