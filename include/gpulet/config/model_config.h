// models.json: the models that are served, and their objectives.
//
// {"models":[{"name":"lenet","file":"../models/lenet.pt",
//   "inputs":[{"name":"image","type":"FP32","shape":[1,28,28]}],
//   "outputs":[{"name":"logits","type":"FP32","shape":[10]}],
//   "slo_ms":50,"rate":100,"max_batch":32,"memory_mb":200}]}
//
// `file` is relative to the JSON file. `rate` is what the first plan expects before anything was
// seen (default 0). `memory_mb` is what it needs of its device, before what its profile says. A
// model may compute otherwise than its file has it, where its device can:
// `"precision":"half"` or `"bfloat16"` (default "full"), `"memory_format":"channels_last"` (default
// "contiguous"); `"largest_error":0.02` (the default) is how far its outputs may then be from those
// of the file, as a fraction of their largest magnitude. `"labels":{"logits":"labels.txt"}` names,
// for an output, the file with the names of its classes (label_file.h).
//
// "queue":{"priority_levels":2,"default_priority_level":2,
//   "default_policy":{"timeout_action":"reject","default_timeout_ms":20,
//     "allow_timeout_override":true,"max_queue_size":100},
//   "level_policies":{"1":{"timeout_action":"delay","default_timeout_ms":40}}}
//
// sets priority levels and queue policies (core/queue_rules.h). All members are optional, but with
// `priority_levels` goes `default_priority_level`. Loading errors (Status invalid or
// not_found) read "<file>: <json pointer>: <what is wrong>; <the mend>". Unknown keys are errors
// that name the nearest known key. Plain values; loading is blocking file I/O.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/numerics.h"
#include "gpulet/core/queue_rules.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::config {

inline constexpr std::uint32_t kLargestBatch = 1024;  // that may be asked for

struct ModelConfig {
  std::string name;                // [A-Za-z0-9._-]+, unique
  std::filesystem::path file;      // absolute once loaded
  std::vector<TensorSpec> inputs;  // at least one
  std::vector<TensorSpec> outputs;
  double slo_ms = 0;             // > 0
  double rate = 0;               // >= 0, requests per second
  std::uint32_t max_batch = 32;  // 1..1024
  std::optional<double> memory_mb;
  Numerics numerics;                                      // largest_error: 0..1
  std::map<std::string, std::filesystem::path> labels{};  // by output; absolute once loaded
  std::optional<QueueRules> queue{};                      // none: requests go by deadline alone

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

[[nodiscard]] Result<std::vector<ModelConfig>> load_models(const std::filesystem::path& file);
// The same from memory; `file` names the text in errors and is what its paths are relative to.
[[nodiscard]] Result<std::vector<ModelConfig>> parse_models(std::string_view text,
                                                            const std::filesystem::path& file);

}  // namespace gpulet::config
