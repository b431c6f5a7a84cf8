// workload.json: what the load generator sends.
//
// {"models":[{"name":"lenet","rate":100,"slo_ms":50,"arrivals":"poisson",
//    "input":{"file":"../models/digits.f32","labels":"../models/digits.labels"}},
//   {"name":"resnet50","rate":5,"slo_ms":400,"arrivals":"uniform"},
//   {"name":"bert","slo_ms":400,"arrivals":"closed","concurrency":4}]}
//
// `arrivals`: "poisson" and "uniform" are open loops at `rate`; "closed" keeps `concurrency`
// requests in flight. `input.file` holds raw requests one after another (little endian, the model's
// inputs in order); `labels` is a text file with one integer per request, compared with the arg max
// of the first output. Without `input`, seeded random tensors are sent. `rate` belongs to the open
// loops, `concurrency` to the closed one. Errors as in model_config.h. Plain values; blocking file
// I/O.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::config {

enum class Arrivals : std::uint8_t { poisson, uniform, closed };

struct WorkloadInput {
  std::filesystem::path file;
  std::optional<std::filesystem::path> labels;
};

struct WorkloadModel {
  std::string name;
  double rate = 0;
  double slo_ms = 0;
  Arrivals arrivals = Arrivals::poisson;
  std::uint32_t concurrency = 1;  // closed only
  std::optional<WorkloadInput> input;
};

[[nodiscard]] Result<std::vector<WorkloadModel>> load_workload(const std::filesystem::path& file);
// The same from memory; `file` names the text in errors and is what its paths are relative to.
// Where `errors` is given, it gets all errors, and what could be read comes back.
[[nodiscard]] Result<std::vector<WorkloadModel>> parse_workload(
    std::string_view text, const std::filesystem::path& file,
    std::vector<Status>* errors = nullptr);

}  // namespace gpulet::config
