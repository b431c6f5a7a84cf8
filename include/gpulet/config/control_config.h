// How executables on GPUs and CPU cores are controlled: the object "control" of frontend.json, and
// what a file for `gpulet simulate --control F` is as a whole (docs/control.md).
//
// {"gpu":"need","cores":"feedback","set_point":0.8,"queued_weight":0.5,"surplus":0,"gpu_cores":0,
//  "least_cores":0.1,"pole":0.5,"period_s":1,"steps_period_s":15,"percentile":0.95,
//  "patience_s":60,"seed":1,"spill":false}
//
// Nothing is required. `gpu` is "need" or "round-robin"; `cores` is "feedback", "steps", "all" or
// "least". `set_point` is of the objective, above 0 and up to 1; `queued_weight` and `surplus` are
// 0 to 1; `pole` is 0 to 0.999; `percentile` is above 0 and up to 0.999, and without it the
// mean is held. The other defaults are those above. Errors as in model_config.h. Blocking file I/O.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "gpulet/control/options.h"
#include "gpulet/core/status.h"

namespace gpulet::config {

[[nodiscard]] Result<control::Options> load_control(const std::filesystem::path& file);

// The same from memory; `file` names the text in errors.
// Where `errors` is given, it gets all errors, and what could be read comes back.
[[nodiscard]] Result<control::Options> parse_control(std::string_view text,
                                                     const std::filesystem::path& file,
                                                     std::vector<Status>* errors = nullptr);

}  // namespace gpulet::config
