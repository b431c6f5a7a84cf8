// What a tensor looks like, without its bytes. Shapes are those of one request: the batch dimension
// is added in front when a batch is formed. Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet {

enum class DataType : std::uint8_t {
  boolean = 1,
  uint8 = 2,
  int8 = 3,
  int16 = 4,
  int32 = 5,
  int64 = 6,
  fp16 = 7,
  bf16 = 8,
  fp32 = 9,
  fp64 = 10,
};

// The name as configuration and the Open Inference Protocol write it: "BOOL", "UINT8", "INT64",
// "FP32", ...
[[nodiscard]] std::string_view to_string(DataType type);
[[nodiscard]] std::optional<DataType> parse_data_type(std::string_view name);
[[nodiscard]] std::size_t byte_size(DataType type);

struct TensorSpec {
  std::string name;
  DataType type = DataType::fp32;
  std::vector<std::int64_t> shape;  // of one request; every dimension at least 1

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// Bytes of one request's tensor. Fails (invalid) on a dimension below 1 or a product that
// overflows.
[[nodiscard]] Result<std::size_t> byte_size(const TensorSpec& spec);

// Bytes of all tensors together. Fails as above.
[[nodiscard]] Result<std::size_t> byte_size(const std::vector<TensorSpec>& specs);

// "FP32[3,224,224]"
[[nodiscard]] std::string to_string(const TensorSpec& spec);

}  // namespace gpulet
