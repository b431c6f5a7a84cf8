// Any bytes, read as an ONNX file: index limits, and a signature within the limits, or a Status
// with a message.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "gpulet/config/onnx_signature.h"

namespace {

using namespace gpulet::config;

void expect_limits(const std::vector<OnnxTensor>& tensors) {
  if (tensors.size() > kMostOnnxTensors) std::abort();
  for (const OnnxTensor& tensor : tensors) {
    if (tensor.name.size() > kLongestOnnxName || to_string(tensor).empty()) std::abort();
    if (tensor.shape && tensor.shape->size() > kMostOnnxDimensions) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // What indexes a table has at least one row there.
  if (const auto limits = parse_index_limits(std::as_bytes(std::span(data, size))); limits.ok()) {
    for (const auto& [input, rows] : limits.value()) {
      if (rows < 1) std::abort();
    }
  }
  const auto signature = parse_onnx_signature(std::as_bytes(std::span(data, size)));
  if (!signature.ok()) {
    if (signature.status().code() != gpulet::StatusCode::invalid) std::abort();
    return 0;
  }
  if (signature.value().outputs.empty()) std::abort();
  expect_limits(signature.value().inputs);
  expect_limits(signature.value().outputs);
  expect_limits(signature.value().optional_inputs);
  for (const OnnxTensor& input : signature.value().optional_inputs) {
    const auto value = parse_initial_value(std::as_bytes(std::span(data, size)), input);
    if (value.ok() && (value.value().empty() || value.value().size() > kLargestInitialValue))
      std::abort();
  }
  const gpulet::TensorSpec one{"x", gpulet::DataType::fp32, {1}};
  (void)check_declared(signature.value(), {one}, {one}, 2);
  return 0;
}
