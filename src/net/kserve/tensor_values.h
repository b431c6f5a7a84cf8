// The elements of tensors: conversion between bytes and JSON numbers, and classification. Private
// to net/kserve. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::net::kserve {

// A number of a JSON tensor.
using Number = std::variant<bool, std::int64_t, std::uint64_t, double>;

// True for numbers that have a C++ type, and BYTES. Other tensors travel raw only.
[[nodiscard]] inline bool has_json_form(DataType type) {
  return type != DataType::fp16 && type != DataType::bf16;
}
// The error of requesting such an output as JSON.
[[nodiscard]] Status no_json_form(const TensorSpec& output);

// Calls `visit` with a value of the element's C++ type; BOOL: a byte. REQUIRES: has_json_form, and
// not BYTES.
template <typename Visit>
auto visit_element_type(DataType type, const Visit& visit) {
  switch (type) {
    case DataType::boolean:
    case DataType::uint8:
      return visit(std::uint8_t{});
    case DataType::int8:
      return visit(std::int8_t{});
    case DataType::int16:
      return visit(std::int16_t{});
    case DataType::int32:
      return visit(std::int32_t{});
    case DataType::int64:
      return visit(std::int64_t{});
    case DataType::fp32:
      return visit(float{});
    case DataType::fp64:
      return visit(double{});
    case DataType::fp16:
    case DataType::bf16:
    case DataType::bytes:
      break;
  }
  throw std::logic_error("half precision and BYTES have no element type");
}

// Returns a copy, because received bytes may be unaligned.
template <typename Element>
[[nodiscard]] std::vector<Element> elements_of(std::span<const std::byte> bytes) {
  std::vector<Element> elements(bytes.size() / sizeof(Element));
  if (!elements.empty())
    std::memcpy(elements.data(), bytes.data(), elements.size() * sizeof(Element));
  return elements;
}

// Fails (invalid), naming the input, if a value does not fit the type, which may be BYTES, or the
// type has no JSON form.
[[nodiscard]] Result<Bytes> bytes_of_numbers(const std::string& input, DataType type,
                                             std::span<const Number> numbers);

// Appends the elements as one flat array: FP32 and FP64 with the fewest digits that restore the
// same value, or as NaN, Infinity and -Infinity; BYTES as strings. Fails with no_json_form(), and
// for a string that is not UTF-8 (invalid).
[[nodiscard]] Status append_values(std::string& json, const TensorSpec& output,
                                   std::span<const std::byte> bytes);

// The classification extension: appends "value:index" for the up to `most` highest elements of a
// row, highest first, ties by index, NaN last; "value:index:name" where `names` has the index.
void append_highest(std::vector<std::string>& labels, DataType type, std::span<const std::byte> row,
                    std::size_t most, std::span<const std::string> names);

}  // namespace gpulet::net::kserve
