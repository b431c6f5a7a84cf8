#include "gpulet/core/bucket.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace gpulet {
namespace {

// A tensor in memory: `blocks` times `length` items of `item` bytes.
struct Layout {
  std::size_t blocks = 1;
  std::size_t item = 0;
  bool dynamic = false;

  [[nodiscard]] std::size_t bytes(std::int64_t length) const {
    return blocks * item * (dynamic ? static_cast<std::size_t>(length) : 1);
  }
};

// REQUIRES: the sizes of the bucket's tensors are representable, which loading checks.
Layout layout_of(const TensorSpec& spec) {
  Layout layout;
  TensorSpec inner{spec.name, spec.type, {}};
  for (const std::int64_t dimension : spec.shape) {
    if (dimension == kAnyLength) {
      for (const std::int64_t before : inner.shape)
        layout.blocks *= static_cast<std::size_t>(before);
      inner.shape.clear();
      layout.dynamic = true;
    } else {
      inner.shape.push_back(dimension);
    }
  }
  const Result<std::size_t> item = byte_size(inner);
  layout.item = item.ok() ? item.value() : 0;
  return layout;
}

template <typename Number>
std::vector<std::byte> bytes_of(Number number) {
  std::vector<std::byte> bytes(sizeof(number));
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

template <typename Integer>
std::optional<std::vector<std::byte>> integer_of(double value) {
  // Both limits are exact as double, except the highest of 64 bits, which rounds up.
  constexpr auto kLowest = static_cast<double>(std::numeric_limits<Integer>::lowest());
  constexpr auto kHighest = static_cast<double>(std::numeric_limits<Integer>::max());
  const bool whole = std::trunc(value) == value && value >= kLowest && value <= kHighest &&
                     (sizeof(Integer) < sizeof(double) || value < kHighest);
  if (!whole) return std::nullopt;
  return bytes_of(static_cast<Integer>(value));
}

void fill(std::byte* to, std::size_t bytes, const std::vector<std::byte>& element) {
  for (std::size_t at = 0; at < bytes; at += element.size())
    std::memcpy(to + at, element.data(), element.size());
}

// Copies the first `kept` bytes of each block of `from` bytes to blocks of `to` bytes.
void copy_blocks(std::span<const std::byte> source, std::size_t from, std::byte* target,
                 std::size_t to, std::size_t kept) {
  for (std::size_t at = 0; at + from <= source.size(); at += from, target += to)
    std::memcpy(target, source.data() + at, kept);
}

std::string shape_text(const TensorSpec& spec) { return spec.name + " is " + to_string(spec); }

}  // namespace

std::string bucket_name(std::string_view model, std::int64_t length) {
  return std::string(model) + '@' + std::to_string(length);
}

std::string_view client_name(std::string_view name) { return name.substr(0, name.find('@')); }

bool is_dynamic(const TensorSpec& spec) {
  return std::find(spec.shape.begin(), spec.shape.end(), kAnyLength) != spec.shape.end();
}

bool is_dynamic(const std::vector<TensorSpec>& specs) {
  return std::any_of(specs.begin(), specs.end(),
                     [](const TensorSpec& spec) { return is_dynamic(spec); });
}

std::vector<TensorSpec> with_length(std::vector<TensorSpec> specs, std::int64_t length) {
  for (TensorSpec& spec : specs)
    std::replace(spec.shape.begin(), spec.shape.end(), kAnyLength, length);
  return specs;
}

Result<std::int64_t> length_of(const std::vector<TensorSpec>& declared,
                               const std::vector<TensorSpec>& given) {
  std::optional<std::int64_t> length;
  const TensorSpec* first = nullptr;
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const std::vector<std::int64_t>& expected = declared[i].shape;
    const std::vector<std::int64_t>& shape = given[i].shape;
    bool fits = shape.size() == expected.size();
    for (std::size_t d = 0; fits && d < shape.size(); ++d) {
      if (expected[d] != kAnyLength) {
        fits = shape[d] == expected[d];
        continue;
      }
      fits = shape[d] >= 1;
      if (fits && length && *length != shape[d]) {
        return Status(StatusCode::invalid, "inputs " + first->name + " and " + declared[i].name +
                                               " must have the same length; the request has " +
                                               std::to_string(*length) + " and " +
                                               std::to_string(shape[d]));
      }
      length = shape[d];
      first = &declared[i];
    }
    if (!fits) {
      return Status(StatusCode::invalid, "input " + shape_text(declared[i]) + "; the request has " +
                                             to_string(given[i]));
    }
  }
  if (!length) return Status(StatusCode::invalid, "no input has a dynamic dimension");
  return *length;
}

std::optional<std::vector<std::byte>> element_of(const TensorSpec& spec, double value) {
  switch (spec.type) {
    case DataType::boolean:
      if (value != 0 && value != 1) return std::nullopt;
      return bytes_of(static_cast<std::uint8_t>(value));
    case DataType::uint8:
      return integer_of<std::uint8_t>(value);
    case DataType::int8:
      return integer_of<std::int8_t>(value);
    case DataType::int16:
      return integer_of<std::int16_t>(value);
    case DataType::int32:
      return integer_of<std::int32_t>(value);
    case DataType::int64:
      return integer_of<std::int64_t>(value);
    case DataType::fp32:
      return bytes_of(static_cast<float>(value));
    case DataType::fp64:
      return bytes_of(value);
    default:
      break;
  }
  const Result<std::size_t> bytes = byte_size(TensorSpec{spec.name, spec.type, {}});
  if (value != 0 || !bytes.ok()) return std::nullopt;
  return std::vector<std::byte>(bytes.value());
}

Bytes padded(const Bucket& bucket, const Bytes& inputs, std::int64_t length) {
  if (length == bucket.length) return inputs;
  std::size_t total = 0;
  for (const TensorSpec& spec : bucket.inputs) total += layout_of(spec).bytes(bucket.length);
  std::vector<std::byte> all(total);
  std::size_t from = 0;
  std::byte* to = all.data();
  for (std::size_t i = 0; i < bucket.inputs.size(); ++i) {
    const Layout layout = layout_of(bucket.inputs[i]);
    const std::size_t given = layout.bytes(length);
    const std::size_t full = layout.bytes(bucket.length);
    if (layout.dynamic) fill(to, full, bucket.padding[i]);
    copy_blocks(inputs.view().subspan(from, given), given / layout.blocks, to, full / layout.blocks,
                given / layout.blocks);
    from += given;
    to += full;
  }
  return Bytes::own(std::move(all));
}

Result<std::vector<Bytes>> cut(const Bucket& bucket, std::vector<Bytes> outputs,
                               std::int64_t length) {
  bool fit = outputs.size() == bucket.outputs.size();
  for (std::size_t i = 0; fit && i < outputs.size(); ++i) {
    const Layout layout = layout_of(bucket.outputs[i]);
    fit = outputs[i].size() == layout.bytes(bucket.length);
    if (!fit || !layout.dynamic || length == bucket.length) continue;
    const std::size_t kept = layout.bytes(length);
    if (layout.blocks == 1) {
      outputs[i] = outputs[i].slice(0, kept);
      continue;
    }
    std::vector<std::byte> part(kept);
    copy_blocks(outputs[i].view(), outputs[i].size() / layout.blocks, part.data(),
                kept / layout.blocks, kept / layout.blocks);
    outputs[i] = Bytes::own(std::move(part));
  }
  if (!fit) {
    return Status(StatusCode::internal, "the outputs of " +
                                            bucket_name(bucket.model, bucket.length) +
                                            " have other sizes than declared");
  }
  return outputs;
}

}  // namespace gpulet
