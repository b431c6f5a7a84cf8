// A plan as JSON, as the command line's contract has it (`gpulet schedule --json`). Blocking file
// I/O where it reads.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "gpulet/core/status.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::tools {

// `plan_time_us`: how long it took to make. A gpulet in a MIG instance has "profile" and "start",
// an executable "service" (schedule::Service).
[[nodiscard]] nlohmann::ordered_json to_json(const schedule::Plan& plan, double plan_time_us);

// Such a document from a file. What a plan does not need (times, the schedulable flag) is not
// looked at. Errors as in config/json.h.
[[nodiscard]] Result<schedule::Plan> read_plan(const std::filesystem::path& file);

}  // namespace gpulet::tools
