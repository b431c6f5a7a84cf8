// The check of a loaded model's answers: each row is computed by itself (row_check.h), and what it
// returns follows from its inputs, not from earlier batches or from memory that nobody wrote.
// Throws what LibTorch throws.
#pragma once

#include <cstdint>

#include "executor/torch/model.h"
#include "gpulet/base/status.h"

namespace gpulet::executor {

// Runs batches of 1, of 2 or 3, and of `largest_batch`, as far as max_batch allows. Random numbers
// are the same afterwards as without the check. Fails with invalid, naming the output and the fix.
[[nodiscard]] Status check_answers(const TorchModel& model, const ExecutionTarget& target,
                                   std::uint32_t max_batch, std::uint32_t largest_batch);

}  // namespace gpulet::executor
