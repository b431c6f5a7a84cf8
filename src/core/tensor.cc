#include "gpulet/core/tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace gpulet {
namespace {

struct TypeInfo {
  DataType type;
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<TypeInfo, 11> kTypes{{
    {DataType::boolean, "BOOL", 1},
    {DataType::uint8, "UINT8", 1},
    {DataType::int8, "INT8", 1},
    {DataType::int16, "INT16", 2},
    {DataType::int32, "INT32", 4},
    {DataType::int64, "INT64", 8},
    {DataType::fp16, "FP16", 2},
    {DataType::bf16, "BF16", 2},
    {DataType::fp32, "FP32", 4},
    {DataType::fp64, "FP64", 8},
    {DataType::bytes, "BYTES", 4},
}};

const TypeInfo& info_of(DataType type) {
  for (const TypeInfo& info : kTypes) {
    if (info.type == type) return info;
  }
  throw std::logic_error("a DataType outside its enumeration: " +
                         std::to_string(static_cast<int>(type)));
}

}  // namespace

std::string_view to_string(DataType type) { return info_of(type).name; }

std::optional<DataType> parse_data_type(std::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (info.name == name) return info.type;
  }
  return std::nullopt;
}

std::size_t byte_size(DataType type) { return info_of(type).bytes; }

Result<std::size_t> byte_size(const TensorSpec& spec) {
  std::size_t bytes = byte_size(spec.type);
  for (const std::int64_t dimension : spec.shape) {
    if (dimension < 1) {
      return Status(StatusCode::invalid, "tensor " + spec.name +
                                             ": every dimension must be at least 1; was " +
                                             std::to_string(dimension));
    }
    if (bytes > std::numeric_limits<std::size_t>::max() / static_cast<std::size_t>(dimension)) {
      return Status(
          StatusCode::invalid,
          "tensor " + spec.name + ": its size in bytes overflows; write smaller dimensions");
    }
    bytes *= static_cast<std::size_t>(dimension);
  }
  if (spec.type != DataType::bytes) return bytes;
  if (spec.max_bytes < bytes || spec.max_bytes > kMostSlotBytes) {
    return Status(StatusCode::invalid,
                  "tensor " + spec.name + ": max_bytes must be " + std::to_string(bytes) + " to " +
                      std::to_string(kMostSlotBytes) + "; was " + std::to_string(spec.max_bytes));
  }
  return spec.max_bytes;
}

Result<std::size_t> byte_size(const std::vector<TensorSpec>& specs) {
  std::size_t total = 0;
  for (const TensorSpec& spec : specs) {
    GPULET_TRY(const std::size_t bytes, byte_size(spec));
    if (bytes > std::numeric_limits<std::size_t>::max() - total) {
      return Status(
          StatusCode::invalid,
          "tensor " + spec.name + ": the total size in bytes overflows; write smaller dimensions");
    }
    total += bytes;
  }
  return total;
}

std::string to_string(const TensorSpec& spec) {
  std::string text(to_string(spec.type));
  text += '[';
  for (std::size_t i = 0; i < spec.shape.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(spec.shape[i]);
  }
  text += ']';
  return text;
}

bool are_whole(const std::vector<TensorSpec>& specs) {
  return std::any_of(specs.begin(), specs.end(), [](const TensorSpec& spec) { return spec.whole; });
}

std::vector<std::int64_t> batch_shape(const TensorSpec& spec, std::int64_t requests) {
  if (spec.whole) return spec.shape;
  std::vector<std::int64_t> shape{requests};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  return shape;
}

namespace image {
namespace {

bool all_finite(const std::array<float, kChannels>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

}  // namespace

Status check(const Preprocessing& preprocessing) {
  const auto invalid = [](const std::string& what) {
    return Status(StatusCode::invalid, "an encoded image: " + what);
  };
  const auto is_side = [](std::uint32_t pixels) {
    return pixels >= 1 && pixels <= kMostSidePixels;
  };
  if (!is_side(preprocessing.width) || !is_side(preprocessing.height)) {
    return invalid("width and height of the input must be 1 to " + std::to_string(kMostSidePixels) +
                   "; were " + std::to_string(preprocessing.width) + " and " +
                   std::to_string(preprocessing.height));
  }
  const std::uint32_t least = std::max(preprocessing.width, preprocessing.height);
  if (preprocessing.shorter_side != 0 &&
      (preprocessing.shorter_side < least || preprocessing.shorter_side > kMostSidePixels)) {
    return invalid("the shorter side before the crop must be " + std::to_string(least) + " to " +
                   std::to_string(kMostSidePixels) + "; was " +
                   std::to_string(preprocessing.shorter_side));
  }
  if (preprocessing.max_megapixels < 1 || preprocessing.max_megapixels > kMostMegapixels) {
    return invalid("the most megapixels must be 1 to " + std::to_string(kMostMegapixels) +
                   "; were " + std::to_string(preprocessing.max_megapixels));
  }
  if (preprocessing.type != DataType::fp32 && preprocessing.type != DataType::uint8)
    return invalid("the input's type must be FP32 or UINT8");
  const Preprocessing neutral;
  if (preprocessing.type == DataType::uint8 &&
      (preprocessing.mean != neutral.mean || preprocessing.scale != neutral.scale))
    return invalid("an input of UINT8 has neither mean nor scale");
  if (!all_finite(preprocessing.mean) || !all_finite(preprocessing.scale))
    return invalid("mean and scale must be finite numbers");
  return {};
}

std::string to_string(const Preprocessing& preprocessing) {
  std::string text = "image " + std::string(gpulet::to_string(preprocessing.type)) + ' ' +
                     std::to_string(preprocessing.width) + 'x' +
                     std::to_string(preprocessing.height) +
                     (preprocessing.layout == Layout::nchw ? " nchw " : " nhwc ") +
                     std::to_string(preprocessing.shorter_side) + ' ' +
                     std::to_string(preprocessing.max_megapixels);
  for (const std::array<float, kChannels>* const values :
       {&preprocessing.mean, &preprocessing.scale}) {
    for (const float value : *values)  // its bits: decimals would round
      text += ' ' + std::to_string(std::bit_cast<std::uint32_t>(value));
  }
  return text;
}

}  // namespace image
}  // namespace gpulet
