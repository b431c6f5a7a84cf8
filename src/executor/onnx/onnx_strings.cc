#include "executor/onnx/onnx_strings.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace gpulet::executor {
namespace {

namespace abi = onnx_abi;

OnnxFailure set_strings(const OnnxLibrary& library, const TensorSpec& spec,
                        std::span<const std::byte> slots, abi::Value* value) {
  const std::size_t elements = element_count(spec);
  std::size_t index = 0;
  for (; !slots.empty(); slots = slots.subspan(spec.max_bytes)) {
    const auto strings = elements_in(slots.first(spec.max_bytes), elements);
    if (!strings) {
      return {abi::ErrorCode::invalid_argument,
              "the bytes of input '" + spec.name + "' are not its strings"};
    }
    for (const std::string_view text : *strings) {
      char* bytes = nullptr;
      OnnxFailure failure =
          library.attempt(abi::kResizeString, value, index++, text.size(), &bytes);
      if (!failure.ok()) return failure;
      std::copy(text.begin(), text.end(), bytes);
    }
  }
  return {};
}

struct Strings {
  std::string bytes;
  std::vector<std::size_t> begins;

  [[nodiscard]] std::string_view at(std::size_t index) const {
    const std::size_t end = index + 1 < begins.size() ? begins[index + 1] : bytes.size();
    return std::string_view(bytes).substr(begins[index], end - begins[index]);
  }
};

OnnxFailure get_strings(const OnnxLibrary& library, const abi::Value* value, Strings& strings) {
  std::size_t bytes = 0;
  OnnxFailure failure = library.attempt(abi::kStringBytes, value, &bytes);
  if (!failure.ok()) return failure;
  strings.bytes.resize(bytes);
  return library.attempt(abi::kStrings, value, static_cast<void*>(strings.bytes.data()), bytes,
                         strings.begins.data(), strings.begins.size());
}

}  // namespace

OnnxHandle<abi::Value> strings_of_slots(const OnnxLibrary& library, OnnxFailure& failure,
                                        const TensorSpec& spec, std::uint32_t count,
                                        std::span<const std::byte> slots) {
  const std::vector<std::int64_t> shape = batch_shape(spec, count);
  abi::Allocator* allocator = nullptr;
  failure = library.attempt(abi::kDefaultAllocator, &allocator);
  if (!failure.ok()) return library.own<abi::Value>(abi::kReleaseValue, nullptr);
  auto value = library.make(abi::kReleaseValue, failure, abi::kCreateOwnedTensor, allocator,
                            shape.data(), shape.size(), kOnnxString);
  if (failure.ok()) failure = set_strings(library, spec, slots, value.get());
  return value;
}

Status strings_to_slots(const OnnxLibrary& library, const TensorSpec& spec, std::uint32_t count,
                        const abi::Value* value, std::span<std::byte> slots) {
  const std::size_t elements = element_count(spec);
  Strings strings{{}, std::vector<std::size_t>(count * elements)};
  if (const OnnxFailure failure = get_strings(library, value, strings); !failure.ok())
    return {StatusCode::internal, failure.message};
  for (std::size_t request = 0; request < count; ++request) {
    std::string slot;
    for (std::size_t i = 0; i < elements; ++i)
      append_element(slot, strings.at(request * elements + i));
    if (slot.size() > spec.max_bytes) {
      return {StatusCode::invalid,
              "output '" + spec.name + "' has " + std::to_string(slot.size()) +
                  " bytes with the lengths of its strings; max_bytes of the model's entry allows " +
                  std::to_string(spec.max_bytes) + "; raise it, or send a shorter input"};
    }
    slot.resize(spec.max_bytes, '\0');
    const auto bytes = std::as_bytes(std::span(slot));
    std::copy(bytes.begin(), bytes.end(), slots.subspan(request * bytes.size()).begin());
  }
  return {};
}

}  // namespace gpulet::executor
