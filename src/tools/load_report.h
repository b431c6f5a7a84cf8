// A load run's outcome for the terminal and for programs. Pure; any thread.
#pragma once

#include <string>

#include "gpulet/load/client.h"

namespace gpulet::tools {

// The contract's JSON document:
// {"models":[{"name","offered","served","dropped","late","errors","p50_ms","p99_ms",
// "slo_ms","violation","accuracy"}],"violation",...}. Percentiles are null where nothing was
// served; accuracy is there only where inputs have labels.
[[nodiscard]] std::string load_json(const load::LoadReport& report);

// A table of the models, then what the user should know: why requests failed, whether the generator
// kept up.
[[nodiscard]] std::string load_text(const load::LoadReport& report);

// The CSV of every request: its header and one request's line.
[[nodiscard]] std::string request_csv_header();
[[nodiscard]] std::string request_csv_line(const std::string& model,
                                           const load::RequestRecord& record);

}  // namespace gpulet::tools
