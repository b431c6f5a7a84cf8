// The inputs that a load generator sends to one model, read from a file or made up, and the
// judgement of answers where the inputs have labels. Immutable once built; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gpulet/config/workload_config.h"
#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::load {

struct InputPool {
  std::vector<Bytes> requests;       // each the model's inputs one after another; at least one
  std::vector<std::int64_t> labels;  // beside requests, or empty
};

// Seeded random inputs; few enough to stay small, reused in turn. Floating point: [0, 1), half
// precision: [0.5, 1). Integers: 0..999 (token ids that any vocabulary holds) or less where the
// type holds less; BOOL: 0 or 1. Fails (invalid) on specs without a byte size.
[[nodiscard]] Result<InputPool> random_inputs(const std::vector<TensorSpec>& inputs,
                                              std::uint64_t seed);

// Blocking file I/O. Fails with not_found or invalid: a file that is not a whole number of
// requests, labels that are not one integer per request; the message names the file, the line where
// there is one, and the mend.
[[nodiscard]] Result<InputPool> read_inputs(const config::WorkloadInput& input,
                                            const std::vector<TensorSpec>& inputs);

// Index of the largest element; the first of equals. Empty where `tensor` holds no whole element or
// has type BOOL.
[[nodiscard]] std::optional<std::int64_t> arg_max(DataType type, const Bytes& tensor);

}  // namespace gpulet::load
