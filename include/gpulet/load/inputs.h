// Inputs that the load generator sends to one model, random or from a file, with optional labels.
// Immutable once built; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/tensor.h"

namespace gpulet::load {

using ValueRanges = std::map<std::string, config::ValueRange>;  // by input

struct InputPool {
  std::vector<Bytes> requests;  // each: the model's inputs, concatenated; at least one
  // Parallel to requests where the model has dynamic dimensions (core/bucket.h); otherwise one for
  // all of them.
  std::vector<std::vector<TensorSpec>> inputs;
  std::vector<std::int64_t> labels;  // parallel to requests, or empty

  [[nodiscard]] const std::vector<TensorSpec>& inputs_of(std::size_t request) const {
    return inputs.size() == 1 ? inputs.front() : inputs[request];
  }
};

// Seeded random inputs, at most 8 MiB; the generator cycles through them. Inputs that `ranges`
// names have values of these ranges. Others: floating point: [0, 1); half precision: [0.5, 1);
// integers: 0..999 (token ids of any vocabulary), or the type's positive range if smaller; BOOL: 0
// or 1. Dynamic dimensions have random sizes, each of `lengths` as often as the others; more
// requests show more of them. Fails (invalid) on specs without a byte size, and where a range does
// not fit its input or names none.
[[nodiscard]] Result<InputPool> random_inputs(const std::vector<TensorSpec>& inputs,
                                              std::uint64_t seed,
                                              const std::vector<std::int64_t>& lengths = {},
                                              const ValueRanges& ranges = {});

// Blocking file I/O. Fails with not_found, or with invalid if a file does not hold a whole number
// of requests or one integer label per request. The message has the file, the line and a fix.
[[nodiscard]] Result<InputPool> read_inputs(const config::WorkloadInput& input,
                                            const std::vector<TensorSpec>& inputs);

// The index of the first largest element. Empty for type BOOL and without a whole element.
[[nodiscard]] std::optional<std::int64_t> arg_max(DataType type, const Bytes& tensor);

}  // namespace gpulet::load
