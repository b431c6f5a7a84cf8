// A model as the frontend serves it: its configuration, its file's hash, and the sizes of its
// tensors. Immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/numerics.h"
#include "gpulet/core/queue_rules.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/core/time.h"

namespace gpulet::serve {

struct ModelToServe;

// The names of an output's classes, by index.
struct OutputLabels {
  std::string file_name;  // without its folder; empty: the output has no labels
  std::vector<std::string> labels;
  friend bool operator==(const OutputLabels&, const OutputLabels&) = default;
};

// What clients read of a model beside its tensors. Nothing is planned or run by it.
struct ModelDescription {
  std::string file_name;             // of the model's file, without its folder
  std::vector<OutputLabels> labels;  // beside the outputs
  friend bool operator==(const ModelDescription&, const ModelDescription&) = default;
};

struct ServedModel {
  std::string name;
  std::string sha256;  // of its file
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  double slo_ms = 0;
  double configured_rate = 0;  // requests per second that the first plan expects
  std::uint32_t max_batch = 32;
  Numerics numerics{};
  std::shared_ptr<const ModelDescription> description{};  // null: there is nothing to tell
  std::optional<QueueRules> queue{};                      // none: requests go by deadline alone

  // Filled by with_sizes().
  std::vector<std::size_t> input_sizes;   // bytes of each input of one request
  std::vector<std::size_t> output_sizes;  // bytes of each output of one request
  std::size_t input_bytes = 0;            // all inputs of one request
};

// What tells two versions of a model apart: its file's hash, then what its tensors are and in what
// numbers it computes. Gpulets of one version never serve another.
[[nodiscard]] std::string version_of(const std::string& sha256,
                                     const std::vector<TensorSpec>& inputs,
                                     const std::vector<TensorSpec>& outputs,
                                     const Numerics& numerics);
[[nodiscard]] std::string version_of(const ServedModel& model);
[[nodiscard]] std::string version_of(const ModelToServe& model);
// The SHA-256 of the version's file.
[[nodiscard]] std::string_view file_of_version(std::string_view version);
// As people read it: the first 12 digits of the file's hash.
[[nodiscard]] std::string short_version(const std::string& version);

// Computes the sizes. Fails (invalid) naming the tensor whose size cannot be.
[[nodiscard]] Result<ServedModel> with_sizes(ServedModel model);

}  // namespace gpulet::serve
