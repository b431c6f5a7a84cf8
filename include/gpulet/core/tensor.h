// The type and shape of a tensor, and the numerics of a model. Shapes are for one request; a batch
// adds its dimension in front. Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"

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
  bytes = 11,  // elements of any length (core/bytes_tensor.h)
};

// The name in configuration files and the Open Inference Protocol: "BOOL", "UINT8", "FP32", ...
[[nodiscard]] std::string_view to_string(DataType type);
[[nodiscard]] std::optional<DataType> parse_data_type(std::string_view name);
// The size of an element. BYTES: of an empty one, which is only its length.
[[nodiscard]] std::size_t byte_size(DataType type);

inline constexpr std::size_t kMostSlotBytes = 64U << 20U;

struct TensorSpec {
  std::string name;
  DataType type = DataType::fp32;
  std::vector<std::int64_t> shape;  // for one request; every dimension is at least 1
  std::size_t max_bytes = 0;        // of BYTES: the size of one request's slot; else 0

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// The bytes of one request's tensor, or of all tensors together; of BYTES: max_bytes. Fails with
// invalid on a dimension below 1, an overflow, or a slot that is too small or above kMostSlotBytes.
[[nodiscard]] Result<std::size_t> byte_size(const TensorSpec& spec);
[[nodiscard]] Result<std::size_t> byte_size(const std::vector<TensorSpec>& specs);

// "FP32[3,224,224]"
[[nodiscard]] std::string to_string(const TensorSpec& spec);

// The floating-point format of a model's computation.
enum class Precision : std::uint8_t {
  full = 0,  // as in the file
  half = 1,  // IEEE half; devices without such arithmetic (the CPU) keep full precision
  bfloat16 = 2,
};

// The enumerator's name.
[[nodiscard]] constexpr std::string_view to_string(Precision precision) {
  if (precision == Precision::half) return "half";
  return precision == Precision::bfloat16 ? "bfloat16" : "full";
}

struct Numerics {
  Precision precision = Precision::full;
  bool channels_last = false;  // memory layout of images
  // Loading compares the outputs of a sample batch with those of the unchanged file. The model is
  // refused where the largest difference in an output, as a fraction of its largest magnitude,
  // exceeds this.
  double largest_error = 0.02;

  friend bool operator==(const Numerics&, const Numerics&) = default;
};

}  // namespace gpulet
