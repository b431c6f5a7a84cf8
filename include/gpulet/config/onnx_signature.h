// OnnxSignature: what an ONNX file says about its inputs and outputs. The reader is a small one of
// protobuf's wire format; it needs neither ONNX Runtime nor protobuf, and skips what nodes and
// weights contain.
//
// The file is not trusted: its names, its tensors and the steps of the reader are limited. Reading
// a file does blocking I/O with pread and maps nothing. Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::config {

struct OnnxDimension {
  static constexpr std::int64_t kAny = -1;

  std::int64_t size = kAny;  // kAny: any size
  std::string name{};        // of a dimension of any size; may be empty

  friend bool operator==(const OnnxDimension&, const OnnxDimension&) = default;
};

// What an input or output is. Only tensors are served.
enum class OnnxKind : std::uint8_t { tensor = 0, sequence, map, sparse_tensor, optional, other };

struct OnnxTensor {
  std::string name;
  // The number of the type in ONNX's TensorProto.DataType. 0: unknown, or not a tensor.
  std::int32_t element_type = 0;
  // With the batch dimension, if there is one. Empty: the file does not say.
  std::optional<std::vector<OnnxDimension>> shape;
  OnnxKind kind = OnnxKind::tensor;

  friend bool operator==(const OnnxTensor&, const OnnxTensor&) = default;
};

struct OnnxSignature {
  std::vector<OnnxTensor> inputs;  // that every call has to give
  // Those that have a value in the file, which a call may replace. Files of older exporters list
  // all of their weights here.
  std::vector<OnnxTensor> optional_inputs;
  std::vector<OnnxTensor> outputs;
  // Some weights or constants are in other files. Nodes are looked at as far as the limits allow.
  bool external_data = false;
  bool random = false;  // an operation may draw random numbers

  friend bool operator==(const OnnxSignature&, const OnnxSignature&) = default;
};

// Limits of the reader.
inline constexpr std::uint64_t kLargestOnnxFile = 1ULL << 31U;  // as protobuf's
inline constexpr std::size_t kMostOnnxTensors = 1024;           // inputs, and outputs
inline constexpr std::size_t kMostOnnxDimensions = 32;          // of one tensor
inline constexpr std::size_t kLongestOnnxName = 1024;           // bytes
inline constexpr std::uint64_t kMostOnnxFields = 1'000'000;     // that are looked at

// Fails with invalid where the bytes are not an ONNX model or exceed a limit, and with unavailable
// where the file cannot be read. The message does not name the file.
[[nodiscard]] Result<OnnxSignature> read_onnx_signature(int descriptor);
[[nodiscard]] Result<OnnxSignature> read_onnx_signature(const std::filesystem::path& file);
[[nodiscard]] Result<OnnxSignature> parse_onnx_signature(std::span<const std::byte> bytes);

inline constexpr std::size_t kLargestInitialValue = 64U << 10U;  // bytes

// The value that the file has for an input, in the bytes of a request's tensor. Fails with
// not_found where it has none, with invalid where the value has more than kLargestInitialValue
// bytes, lies in another file or has a type that is not served, and as read_onnx_signature().
[[nodiscard]] Result<std::vector<std::byte>> read_initial_value(const std::filesystem::path& file,
                                                                const OnnxTensor& input);
[[nodiscard]] Result<std::vector<std::byte>> parse_initial_value(std::span<const std::byte> bytes,
                                                                 const OnnxTensor& input);

// The type of that number; empty: no model here can have such a tensor.
[[nodiscard]] std::optional<DataType> data_type_of(std::int32_t element_type);

// Fails with invalid, with the fix, where the input or output is not a tensor.
[[nodiscard]] Status check_kind(const OnnxTensor& tensor);

// `"image" FP32[batch,1,28,28]`, with "?" for a dimension without a name; without the shape where
// the file has none; `"scores" sequence`
[[nodiscard]] std::string to_string(const OnnxTensor& tensor);

// Fails with invalid unless a model with this signature takes exactly these inputs (what they are
// converted to, where clients send UINT8 for them) and has these outputs in batches of 1 to
// max_batch, or as they are where they are whole. Tensors are matched by name. Optional inputs need
// not be declared, and the file may have other outputs, too. What it does not say about a shape
// fits any declaration.
[[nodiscard]] Status check_declared(const OnnxSignature& signature,
                                    const std::vector<TensorSpec>& inputs,
                                    const std::vector<TensorSpec>& outputs,
                                    std::uint32_t max_batch);

// ---- onnx ranges
//
// What an ONNX file says about the values of its inputs: how many rows the tables have that they
// index. The reader skips weights and needs neither ONNX Runtime nor protobuf.
//
// The file is not trusted: the steps of the reader and what it keeps are limited. Blocking file
// I/O; any thread.

// Limits of the reader, beside those of onnx_signature.h.
inline constexpr std::size_t kMostRangeNodes = 50'000;  // that are looked at
inline constexpr std::size_t kLongestRangeName = 512;   // bytes, of a tensor inside
inline constexpr std::size_t kMostTableDimensions = 8;

// By input: its values have to be below this number. Inputs that index no table, as far as the file
// shows it, are missing. Fails with invalid where the file is not an ONNX model or exceeds a limit,
// and with unavailable where it cannot be read.
[[nodiscard]] Result<std::map<std::string, std::int64_t>> read_index_limits(
    const std::filesystem::path& file);
[[nodiscard]] Result<std::map<std::string, std::int64_t>> parse_index_limits(
    std::span<const std::byte> bytes);

}  // namespace gpulet::config
