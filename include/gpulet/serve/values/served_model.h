// A model as the frontend serves it (its configuration, its file's hash and its tensors' sizes),
// its versions, and the outcome of loading it. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/bucket.h"
#include "gpulet/core/queue_rules.h"
#include "gpulet/core/tensor.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::serve {

// The names of an output's classes, by index.
struct OutputLabels {
  std::string file_name;  // without its directory; empty: the output has no labels
  std::vector<std::string> labels;
  friend bool operator==(const OutputLabels&, const OutputLabels&) = default;
};

// A model's metadata for clients. It affects neither plans nor execution.
struct ModelDescription {
  std::string file_name;  // of the model's file, without its directory
  config::FileFormat format = config::FileFormat::torchscript;
  std::vector<OutputLabels> labels;            // parallel to the outputs
  std::vector<config::ImageFormat> formats{};  // parallel to the inputs, or empty: none
  std::uint64_t version = 0;                   // that clients see; 0: it is counted
  // Parallel to the inputs, or empty: none. What one request has in place of an input that it
  // leaves out; empty: it must be there.
  std::vector<std::vector<std::byte>> defaults{};
  friend bool operator==(const ModelDescription&, const ModelDescription&) = default;
};

struct ServedModel {
  std::string name;
  std::string sha256;            // of its file; empty: the file has not come from its store
  std::uint64_t file_bytes = 0;  // 0: unknown
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  double slo_ms = 0;
  double configured_rate = 0;  // requests per second that the first plan expects
  std::uint32_t max_batch = 32;
  Numerics numerics{};
  std::shared_ptr<const ModelDescription> description{};  // null: none
  std::optional<QueueRules> queue{};  // empty: requests are ordered by deadline alone
  // What it takes of a model with dynamic dimensions; null: it is a model that clients name.
  std::shared_ptr<const Bucket> bucket{};

  // Filled by with_sizes().
  std::vector<std::size_t> input_sizes;   // bytes of each input of one request
  std::vector<std::size_t> output_sizes;  // bytes of each output of one request
  std::size_t input_bytes = 0;            // all inputs of one request
};

// Orders the states of a model's buckets: the model has the state of the lowest.
[[nodiscard]] int bucket_rank(ModelState state);

// As that of the ModelToServe that backends get (protocol/messages.h).
[[nodiscard]] std::string version_of(const ServedModel& model);

// Computes the sizes. Fails (invalid), naming the tensor, where a size is not representable.
[[nodiscard]] Result<ServedModel> with_sizes(ServedModel model);

// The outcome of a request to load a model.
struct LoadOutcome {
  bool serves = false;
  std::string text;  // the version that serves, or why none does
};

// The version that is to serve, from the ModelInfo right after the change. Empty: it is not known
// before the file has come from its store.
[[nodiscard]] std::string wanted_version(const ModelInfo& model);

// Empty: not decided yet. A model that serves is not decided while a plan is being made or rolled
// out, because that plan may leave it unserved.
[[nodiscard]] std::optional<LoadOutcome> outcome_of_load(const ModelInfo& now,
                                                         const std::string& wanted_version);

}  // namespace gpulet::serve
