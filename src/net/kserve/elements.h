// A tensor's bytes as its elements. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include "gpulet/core/tensor.h"

namespace gpulet::net::kserve {

// Whether the elements have a C++ type, and with it a form in JSON. The others travel raw only.
[[nodiscard]] inline bool has_json_form(DataType type) {
  return type != DataType::fp16 && type != DataType::bf16;
}

// Calls `visit` with a value of the C++ type of the elements. BOOL is a byte.
// REQUIRES: has_json_form(type).
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
      break;
  }
  throw std::logic_error("half precision has no element type");
}

// A copy: a stranger's bytes lie at any address.
template <typename Element>
[[nodiscard]] std::vector<Element> elements_of(std::span<const std::byte> bytes) {
  std::vector<Element> elements(bytes.size() / sizeof(Element));
  if (!elements.empty())
    std::memcpy(elements.data(), bytes.data(), elements.size() * sizeof(Element));
  return elements;
}

}  // namespace gpulet::net::kserve
