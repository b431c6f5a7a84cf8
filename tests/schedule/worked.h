// Small inputs whose plans can be computed by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/profile/profile.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule::testing {

// Latency of a batch: (fixed_ms + per_request_ms * batch) * 100 / percent. Sampled at batches 1 and
// `largest`.
struct ModelLatency {
  std::string name;
  double fixed_ms = 0;
  double per_request_ms = 0;
  std::uint32_t largest = 32;
  double memory_mb = 0;  // 0: not measured
};

// An input with the profiles that it refers to. Margin 1, no headroom, no interference.
struct Worked {
  std::unique_ptr<profile::ProfileSet> profiles = std::make_unique<profile::ProfileSet>();
  std::unique_ptr<profile::InterferenceSet> interference;  // null: none
  PlanInput input;

  Worked() {
    input.profiles = profiles.get();
    input.options.margin = 1;
    input.options.headroom = Headroom::none;
  }
};

void add_profile(Worked& worked, const std::string& type, const std::vector<ModelLatency>& models);
// Appends devices to a node; sizes 20 40 50 60 80 100, two partitions.
void add_devices(Worked& worked, const std::string& node, const std::string& type,
                 std::uint32_t count);

// Divides all present devices, or one, by MIG, with `processes` per instance.
void divide_by_mig(Worked& worked, std::string_view geometry, std::uint32_t processes = 1);
void divide_by_mig(Device& device, std::string_view geometry, std::uint32_t processes = 1);

// The names of all policies whose plans keep all rules, also of those of the research library.
[[nodiscard]] std::vector<std::string_view> policy_names();

// The policies for devices without MIG.
[[nodiscard]] std::vector<std::string_view> share_policies();

// The policy with that name. Throws where there is none.
[[nodiscard]] std::unique_ptr<Policy> policy(std::string_view name);

// All violations of check(), one per line; empty for a valid plan.
[[nodiscard]] std::string violations(const Plan& plan, const PlanInput& input);

// The gpulets, unserved rates and notes of one plan that the other does not have, as text.
[[nodiscard]] std::string differences(const Plan& one, const Plan& other);

// Requests per second of the model that the plan serves.
[[nodiscard]] double served(const Plan& plan, const std::string& model);

struct Moves {
  std::size_t kept = 0;
  std::size_t created = 0;
  std::size_t retired = 0;

  friend bool operator==(const Moves&, const Moves&) = default;
};

// How many gpulets a change of plan keeps, creates and retires by reconcile(), if `current` runs
// exactly as planned.
[[nodiscard]] Moves count_moves(const Plan& current, const Plan& next);

}  // namespace gpulet::schedule::testing
