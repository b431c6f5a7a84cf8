// A workload made ready to be sent: what the user wrote, joined with what the target says of its
// models.
#pragma once

#include <string>
#include <vector>

#include "gpulet/config/workload_config.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/core/time.h"
#include "gpulet/load/generator.h"
#include "gpulet/load/inputs.h"
#include "gpulet/serve/messages.h"

namespace gpulet::load {

struct PreparedModel {
  ModelLoad load;
  Duration timeout{};              // to send; zero: the server's SLO
  std::vector<TensorSpec> inputs;  // of one request
  InputPool pool;
};

// What a workload is multiplied by, to fit another machine than it was written for.
struct Scale {
  double rate = 1;  // of open loops
  double slo = 1;   // of the objectives that the workload gives
};

// A model without slo_ms takes the server's.
// Reads the input files (blocking). Fails with invalid or not_found; the message starts with the
// JSON pointer of the model's place in the workload, or names the input file.
[[nodiscard]] Result<std::vector<PreparedModel>> prepare(
    const std::vector<config::WorkloadModel>& workload, const std::vector<serve::ModelInfo>& served,
    const Scale& scale, std::uint64_t seed);

}  // namespace gpulet::load
