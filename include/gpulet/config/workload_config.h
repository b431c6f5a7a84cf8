// workload.json: what the load generator sends.
//
// {"models":[{"name":"lenet","rate":100,"slo_ms":50,"arrivals":"poisson",
//    "input":{"file":"../models/digits.f32","labels":"../models/digits.labels"}},
//   {"name":"resnet50","rate":5,"slo_ms":400,"arrivals":"uniform"},
//   {"name":"bert","slo_ms":400,"arrivals":"closed","concurrency":4}]}
//
// `arrivals`: "poisson" and "uniform" are open loops at `rate`; "closed" keeps `concurrency`
// requests in flight. `rate` belongs to the open loops and `concurrency` to the closed one.
// `input.file` contains raw requests (little endian, the model's inputs in order); `labels` is a
// text file with one integer per request, compared with the arg max of the first output. Without
// `input`, the tensors are random and seeded. Errors as in model_config.h. Values; any thread.
// load_workload() does blocking file I/O.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"

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
  std::uint32_t concurrency = 1;  // closed loop only
  std::optional<WorkloadInput> input;
};

[[nodiscard]] Result<std::vector<WorkloadModel>> load_workload(const std::filesystem::path& file);
// Parses text in memory. `file` names the text in errors and is the base of its relative paths.
// With `errors`, stores all errors there and returns what could be read.
[[nodiscard]] Result<std::vector<WorkloadModel>> parse_workload(
    std::string_view text, const std::filesystem::path& file,
    std::vector<Status>* errors = nullptr);

}  // namespace gpulet::config
