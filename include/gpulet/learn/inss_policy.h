// The policy `inss`: a learned placement decides which model gets which share of which device, the
// batch search (schedule/batch_search.h) how it is served there. InSS, section 5.5. Pure, but for
// make_policy; any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "gpulet/core/status.h"
#include "gpulet/learn/learned_policy.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::learn {

// Where the plan in force can hold the rates with other batches, its places are kept (case 1);
// otherwise the network places all models anew (case 2). Where the input is not of the policy's
// task, or the plan would break a rule, the plan is made by `cover`, and a note says why.
[[nodiscard]] std::unique_ptr<schedule::Policy> make_inss_policy(LearnedPolicy learned);

// Whether it is a learned one whose task is not the input's; the reason.
[[nodiscard]] Status fits(const schedule::Policy& policy, const schedule::PlanInput& input);

// Any policy by its name: schedule::make_policy(), or "inss:FILE", which reads the file, relative
// to `folder`. Fails with not_found or invalid.
[[nodiscard]] Result<std::unique_ptr<schedule::Policy>> make_policy(
    std::string_view name, const std::filesystem::path& folder = {});

}  // namespace gpulet::learn
