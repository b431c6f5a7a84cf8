// Small ONNX files, written as protobuf's wire format without any library.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpulet::support::onnx {

inline std::string varint(std::uint64_t number) {
  std::string text;
  for (; number >= 0x80; number >>= 7U) text += static_cast<char>((number & 0x7f) | 0x80);
  return text + static_cast<char>(number);
}
inline std::string number_field(std::uint32_t field, std::uint64_t number) {
  return varint(field << 3U) + varint(number);
}
inline std::string content_field(std::uint32_t field, std::string_view content) {
  return varint((field << 3U) | 2U) + varint(content.size()) + std::string(content);
}

// Numbers of TensorProto.DataType.
inline constexpr int kFloat = 1;
inline constexpr int kInt64 = 7;
inline constexpr int kString = 8;
inline constexpr int kFloat16 = 10;
inline constexpr int kDouble = 11;

// A number, a name, or neither.
struct Dimension {
  Dimension(std::int64_t number) : size(number) {}           // NOLINT
  Dimension(const char* symbol) : size(-1), name(symbol) {}  // NOLINT
  Dimension(std::int64_t number, std::string symbol) : size(number), name(std::move(symbol)) {}

  std::int64_t size;  // -1: none
  std::string name{};
};

struct Tensor {
  std::string name;
  int type = kFloat;
  std::optional<std::vector<Dimension>> shape{};
  std::string other_type{};  // an encoded TypeProto, in place of a tensor's
};

inline std::string encode(const Tensor& tensor) {
  if (!tensor.other_type.empty())
    return content_field(1, tensor.name) + content_field(2, tensor.other_type);
  std::string type = number_field(1, static_cast<std::uint64_t>(tensor.type));
  if (tensor.shape) {
    std::string dimensions;
    for (const Dimension& dimension : *tensor.shape) {
      std::string one;
      if (dimension.size >= 0) one = number_field(1, static_cast<std::uint64_t>(dimension.size));
      if (!dimension.name.empty()) one = content_field(2, dimension.name);
      dimensions += content_field(1, one);
    }
    type += content_field(2, dimensions);
  }
  return content_field(1, tensor.name) + content_field(2, content_field(1, type));
}

struct Node {
  std::string operation;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<std::string> attributes{};  // encoded
  std::string domain{};                   // of the operation; empty: ONNX's own
};

inline std::string integer_attribute(std::string_view name, std::int64_t number) {
  constexpr int kInteger = 2;
  return content_field(1, name) + number_field(3, static_cast<std::uint64_t>(number)) +
         number_field(20, kInteger);
}

inline std::string integers_attribute(std::string_view name,
                                      const std::vector<std::int64_t>& numbers) {
  constexpr int kIntegers = 7;
  std::string text = content_field(1, name);
  for (const std::int64_t number : numbers)
    text += number_field(8, static_cast<std::uint64_t>(number));
  return text + number_field(20, kIntegers);
}

inline std::string strings_attribute(std::string_view name,
                                     const std::vector<std::string>& strings) {
  constexpr int kStrings = 8;
  std::string text = content_field(1, name);
  for (const std::string& each : strings) text += content_field(9, each);
  return text + number_field(20, kStrings);
}

inline std::string float_attribute(std::string_view name, float number) {
  constexpr int kReal = 1;
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  constexpr std::uint32_t kFourBytes = 5;
  return content_field(1, name) + varint((2U << 3U) | kFourBytes) + bytes + number_field(20, kReal);
}

// Of an encoded tensor or graph.
inline std::string tensor_attribute(std::string_view name, std::string_view tensor) {
  constexpr int kTensor = 4;
  return content_field(1, name) + content_field(5, tensor) + number_field(20, kTensor);
}
inline std::string graph_attribute(std::string_view name, std::string_view graph) {
  constexpr int kGraph = 5;
  return content_field(1, name) + content_field(6, graph) + number_field(20, kGraph);
}

inline std::string encode(const Node& node) {
  std::string text;
  for (const std::string& input : node.inputs) text += content_field(1, input);
  for (const std::string& output : node.outputs) text += content_field(2, output);
  text += content_field(4, node.operation);
  for (const std::string& attribute : node.attributes) text += content_field(5, attribute);
  return node.domain.empty() ? text : text + content_field(7, node.domain);
}

// Weights of floats.
struct Weight {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> numbers;
  bool external = false;
};

inline std::string encode(const Weight& weight) {
  std::string text;
  for (const std::int64_t size : weight.shape)
    text += number_field(1, static_cast<std::uint64_t>(size));
  text += number_field(2, kFloat) + content_field(8, weight.name);
  if (weight.external) {
    return text + content_field(13, content_field(1, "location") + content_field(2, "other.bin")) +
           number_field(14, 1);
  }
  std::string bytes(weight.numbers.size() * sizeof(float), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), weight.numbers.data(), bytes.size());
  return text + content_field(9, bytes);
}

inline std::string strings_constant(std::string_view name, const std::vector<std::int64_t>& shape,
                                    const std::vector<std::string>& strings) {
  std::string text;
  for (const std::int64_t size : shape) text += number_field(1, static_cast<std::uint64_t>(size));
  text += number_field(2, kString);
  for (const std::string& each : strings) text += content_field(6, each);
  return text + content_field(8, name);
}

// Of one dimension.
inline std::string integers_constant(std::string_view name,
                                     const std::vector<std::int64_t>& numbers) {
  std::string text = number_field(1, numbers.size()) + number_field(2, kInt64);
  for (const std::int64_t number : numbers)
    text += number_field(7, static_cast<std::uint64_t>(number));
  return text + content_field(8, name);
}

struct Model {
  std::vector<Tensor> inputs{};
  std::vector<Tensor> outputs{};
  std::vector<Node> nodes{};
  std::vector<Weight> weights{};
  std::uint64_t operators = 13;          // version of the set of operators
  std::uint64_t ml_operators = 0;        // of "ai.onnx.ml"; 0: none
  std::vector<std::string> constants{};  // encoded
};

inline std::string encode_graph(const Model& model) {
  std::string graph;
  for (const Node& node : model.nodes) graph += content_field(1, encode(node));
  graph += content_field(2, "g");
  for (const Weight& weight : model.weights) graph += content_field(5, encode(weight));
  for (const std::string& constant : model.constants) graph += content_field(5, constant);
  for (const Tensor& input : model.inputs) graph += content_field(11, encode(input));
  for (const Tensor& output : model.outputs) graph += content_field(12, encode(output));
  return graph;
}

inline std::string encode(const Model& model) {
  constexpr std::uint64_t kFormat = 7;
  std::string text = number_field(1, kFormat) + content_field(2, "gpulet") +
                     content_field(7, encode_graph(model)) +
                     content_field(8, number_field(2, model.operators));
  if (model.ml_operators == 0) return text;
  return text +
         content_field(8, content_field(1, "ai.onnx.ml") + number_field(2, model.ml_operators));
}

}  // namespace gpulet::support::onnx
