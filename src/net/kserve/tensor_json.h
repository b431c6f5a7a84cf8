// Tensors between JSON's numbers and bytes. Pure; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"
#include "infer_document.h"

namespace gpulet::net::kserve {

// Fails (invalid) where a value does not fit the type, or the type has no form in JSON, naming the
// input.
[[nodiscard]] Result<Bytes> bytes_of_numbers(const std::string& input, DataType type,
                                             std::span<const Number> numbers);

// Appends the elements as one flat array: FP32 and FP64 in the fewest digits that read back the
// same, or as NaN, Infinity and -Infinity. Fails (invalid) where the type has no form in JSON,
// naming the output.
[[nodiscard]] Status append_numbers(std::string& json, const TensorSpec& output,
                                    std::span<const std::byte> bytes);

}  // namespace gpulet::net::kserve
