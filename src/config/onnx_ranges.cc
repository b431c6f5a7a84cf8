#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "config/wire_reader.h"
#include "gpulet/base/files.h"
#include "gpulet/config/onnx_signature.h"

namespace gpulet::config {
namespace onnx_ranges {
namespace {

// The numbers of the fields that are read, by message of onnx.proto.
constexpr std::uint64_t kModelGraph = 7;
constexpr std::uint64_t kGraphNode = 1;
constexpr std::uint64_t kGraphInitializer = 5;
constexpr std::uint64_t kGraphInput = 11;
constexpr std::uint64_t kNodeInput = 1;
constexpr std::uint64_t kNodeOutput = 2;
constexpr std::uint64_t kNodeOperation = 4;
constexpr std::uint64_t kNodeAttribute = 5;
constexpr std::uint64_t kAttributeName = 1;
constexpr std::uint64_t kAttributeInteger = 3;
constexpr std::uint64_t kAttributeTensor = 5;
constexpr std::uint64_t kTensorDimension = 1;
constexpr std::uint64_t kTensorName = 8;
constexpr std::uint64_t kTensorFloats = 4;
constexpr std::uint64_t kTensorSmallIntegers = 5;  // up to 32 bits, and the bits of half precision
constexpr std::uint64_t kTensorIntegers = 7;
constexpr std::uint64_t kTensorRaw = 9;
constexpr std::uint64_t kTensorDoubles = 10;
constexpr std::uint64_t kTensorPlace = 14;
constexpr std::uint64_t kValueName = 1;

constexpr std::size_t kMostSteps = 64;  // from a table's index to an input
constexpr std::size_t kLongestOperation = 64;

using Shape = std::vector<std::int64_t>;

struct Node {
  std::string operation;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::int64_t axis = 0;
  std::optional<Shape> constant{};
};

struct Graph {
  std::vector<Node> nodes;
  std::map<std::string, std::size_t> made_by;  // tensor -> index into nodes
  std::map<std::string, Shape> weights;
  std::set<std::string> inputs;
};

// Operations whose result has the values of their first input.
constexpr std::array<std::string_view, 10> kSameValues = {
    "Cast",    "Identity",  "Reshape", "Squeeze", "Unsqueeze",
    "Flatten", "Transpose", "Slice",   "Expand",  "Gather"};
// Operations whose result has the shape of their first input.
constexpr std::array<std::string_view, 3> kSameShape = {"Cast", "Identity", "DequantizeLinear"};

// An operation that looks up the rows of a table.
struct LookUp {
  std::string_view operation;
  std::size_t table;
  std::size_t index;
};
constexpr std::array kLookUps{LookUp{"Gather", 0, 1}, LookUp{"EmbedLayerNormalization", 2, 0},
                              LookUp{"EmbedLayerNormalization", 4, 1}};

template <std::size_t kCount>
bool has(const std::array<std::string_view, kCount>& operations, const std::string& one) {
  return std::find(operations.begin(), operations.end(), one) != operations.end();
}

class Reader {
 public:
  explicit Reader(ByteSource& source) : wire_(source, kMostOnnxFields) {}

  [[nodiscard]] Result<Graph> read() {
    Graph graph;
    WireRange rest = wire_.all();
    while (const auto field = wire_.next(rest)) {
      if (field->number == kModelGraph && field->has_content) read_graph(field->content, graph);
    }
    if (!wire_.status().ok()) return wire_.status();
    return graph;
  }

 private:
  void read_graph(WireRange rest, Graph& graph) {
    while (const auto field = wire_.next(rest)) {
      if (!field->has_content) continue;
      if (field->number == kGraphNode) add_node(field->content, graph);
      if (field->number == kGraphInput) graph.inputs.insert(read_name(field->content, kValueName));
      if (field->number == kGraphInitializer) {
        Shape shape = read_shape(field->content);
        graph.weights.insert_or_assign(read_name(field->content, kTensorName), std::move(shape));
      }
      const std::size_t kept = graph.nodes.size() + graph.inputs.size() + graph.weights.size();
      if (kept > kMostRangeNodes) return wire_.fail(StatusCode::invalid, "it has too many nodes");
    }
  }

  void add_node(WireRange rest, Graph& graph) {
    Node node;
    while (const auto field = wire_.next(rest)) {
      if (!field->has_content) continue;
      if (field->number == kNodeInput) node.inputs.push_back(name(field->content));
      if (field->number == kNodeOutput) node.outputs.push_back(name(field->content));
      if (field->number == kNodeOperation)
        node.operation = wire_.text(field->content, kLongestOperation);
      if (field->number == kNodeAttribute) read_attribute(field->content, node);
    }
    const bool wanted = has(kSameValues, node.operation) || has(kSameShape, node.operation) ||
                        node.constant || is_look_up(node.operation);
    if (!wanted || node.outputs.empty()) return;
    graph.made_by.insert_or_assign(node.outputs.front(), graph.nodes.size());
    graph.nodes.push_back(std::move(node));
  }

  static bool is_look_up(const std::string& operation) {
    return std::any_of(kLookUps.begin(), kLookUps.end(),
                       [&](const LookUp& one) { return one.operation == operation; });
  }

  void read_attribute(WireRange rest, Node& node) {
    std::string attribute;
    std::int64_t integer = 0;
    std::optional<Shape> tensor;
    while (const auto field = wire_.next(rest)) {
      if (field->number == kAttributeName && field->has_content) attribute = name(field->content);
      if (field->number == kAttributeInteger && !field->has_content)
        integer = static_cast<std::int64_t>(field->value);
      if (field->number == kAttributeTensor && field->has_content)
        tensor = read_shape(field->content);
    }
    if (attribute == "axis") node.axis = integer;
    if (attribute == "value") node.constant = std::move(tensor);
  }

  [[nodiscard]] Shape read_shape(WireRange rest) {
    Shape shape;
    while (const auto field = wire_.next(rest)) {
      if (field->number != kTensorDimension || field->has_content) continue;
      if (shape.size() == kMostTableDimensions) return {};
      shape.push_back(static_cast<std::int64_t>(field->value));
    }
    return shape;
  }

  [[nodiscard]] std::string read_name(WireRange rest, std::uint64_t number) {
    std::string found;
    while (const auto field = wire_.next(rest)) {
      if (field->number == number && field->has_content) found = name(field->content);
    }
    return found;
  }

  [[nodiscard]] std::string name(const WireRange& content) {
    return wire_.text(content, kLongestRangeName);
  }

  WireReader wire_;
};

// The tensor from which `tensor` has come through operations that keep what matters.
template <std::size_t kCount>
std::string origin_of(const Graph& graph, std::string tensor,
                      const std::array<std::string_view, kCount>& keep) {
  for (std::size_t step = 0; step < kMostSteps; ++step) {
    const auto made = graph.made_by.find(tensor);
    if (made == graph.made_by.end()) break;
    const Node& node = graph.nodes[made->second];
    if (!has(keep, node.operation) || node.inputs.empty()) break;
    tensor = node.inputs.front();
  }
  return tensor;
}

// Empty: the tensor is no weight.
std::optional<Shape> shape_of_weight(const Graph& graph, const std::string& tensor) {
  const std::string origin = origin_of(graph, tensor, kSameShape);
  if (const auto weight = graph.weights.find(origin); weight != graph.weights.end())
    return weight->second;
  const auto made = graph.made_by.find(origin);
  return made == graph.made_by.end() ? std::nullopt : graph.nodes[made->second].constant;
}

void add_limit(const Graph& graph, const Node& node, const LookUp& look_up,
               std::map<std::string, std::int64_t>& limits) {
  if (node.inputs.size() <= std::max(look_up.table, look_up.index)) return;
  const auto table = shape_of_weight(graph, node.inputs[look_up.table]);
  if (!table) return;
  const auto rank = static_cast<std::int64_t>(table->size());
  const std::int64_t axis = node.axis < 0 ? node.axis + rank : node.axis;
  if (axis < 0 || axis >= rank) return;
  const std::int64_t rows = (*table)[static_cast<std::size_t>(axis)];
  const std::string input = origin_of(graph, node.inputs[look_up.index], kSameValues);
  if (rows < 1 || !graph.inputs.contains(input) || graph.weights.contains(input)) return;
  const auto [limit, first] = limits.emplace(input, rows);
  if (!first) limit->second = std::min(limit->second, rows);
}

Result<std::map<std::string, std::int64_t>> limits_of(ByteSource& source) {
  GPULET_TRY(const auto graph, Reader(source).read());
  std::map<std::string, std::int64_t> limits;
  for (const Node& node : graph.nodes) {
    for (const LookUp& look_up : kLookUps) {
      if (look_up.operation == node.operation) add_limit(graph, node, look_up, limits);
    }
  }
  return limits;
}

}  // namespace
}  // namespace onnx_ranges

Result<std::map<std::string, std::int64_t>> read_index_limits(const std::filesystem::path& file) {
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!opened.valid() || ::fstat(opened.get(), &facts) != 0)
    return unreadable(std::strerror(errno));
  FileSource source(opened.get(), static_cast<std::uint64_t>(facts.st_size));
  return onnx_ranges::limits_of(source);
}

Result<std::map<std::string, std::int64_t>> parse_index_limits(std::span<const std::byte> bytes) {
  MemorySource source(bytes);
  return onnx_ranges::limits_of(source);
}

// ---- initial values

namespace onnx_ranges {
namespace {

// The numbers of a packed list of varints.
std::vector<std::uint64_t> unpacked(std::string_view list) {
  constexpr unsigned kBits = 7;
  constexpr unsigned kMostBits = 64;
  std::vector<std::uint64_t> numbers;
  unsigned shift = 0;
  std::uint64_t value = 0;
  for (const char letter : list) {
    const auto next = static_cast<unsigned char>(letter);
    if (shift < kMostBits) value |= static_cast<std::uint64_t>(next & 0x7fU) << shift;
    shift += kBits;
    if ((next & 0x80U) != 0) continue;
    numbers.push_back(value);
    value = 0;
    shift = 0;
  }
  return numbers;
}

// Finds the weight of a name, and keeps its value.
class ValueReader {
 public:
  ValueReader(ByteSource& source, const OnnxTensor& input)
      : wire_(source, kMostOnnxFields), input_(input) {}

  [[nodiscard]] Result<std::vector<std::byte>> read() {
    WireRange rest = wire_.all();
    while (const auto field = wire_.next(rest)) {
      if (field->number == kModelGraph && field->has_content) read_graph(field->content);
    }
    if (!wire_.status().ok()) return wire_.status();
    if (!found_) return Status(StatusCode::not_found, "the file has no value for it");
    if (value_.empty())
      return Status(StatusCode::invalid, "its value in the file has a form that is not read");
    return std::move(value_);
  }

 private:
  void read_graph(WireRange rest) {
    while (const auto field = wire_.next(rest)) {
      if (field->number != kGraphInitializer || !field->has_content) continue;
      if (is_wanted(field->content)) read_value(field->content);
    }
  }

  [[nodiscard]] bool is_wanted(WireRange rest) {
    while (const auto field = wire_.next(rest)) {
      if (field->number == kTensorName && field->has_content)
        return wire_.text(field->content, kLongestOnnxName) == input_.name;
    }
    return false;
  }

  void read_value(WireRange rest) {
    const auto type = data_type_of(input_.element_type);
    found_ = true;
    if (!type || *type == DataType::bytes) return;
    while (const auto field = wire_.next(rest)) {
      if (field->number == kTensorPlace && !field->has_content && field->value != 0) return;
      if (!field->has_content) {
        if (field->number == kTensorSmallIntegers || field->number == kTensorIntegers)
          add_number(field->value, byte_size(*type));
        continue;
      }
      if (field->content.size() == 0) continue;
      switch (field->number) {
        case kTensorRaw:
        case kTensorFloats:
        case kTensorDoubles: {
          const std::string text = bytes_of(field->content);
          const auto bytes = std::as_bytes(std::span(text));
          value_.assign(bytes.begin(), bytes.end());
          break;
        }
        case kTensorSmallIntegers:
        case kTensorIntegers:
          for (const std::uint64_t number : unpacked(bytes_of(field->content)))
            add_number(number, byte_size(*type));
          break;
        default:
          break;
      }
    }
  }

  // In its lowest `size` bytes.
  void add_number(std::uint64_t number, std::size_t size) {
    if (value_.size() + size > kLargestInitialValue) return too_large();
    const auto bytes = std::as_bytes(std::span(&number, 1));  // little-endian, as everywhere
    value_.insert(value_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
  }

  void too_large() {
    wire_.fail(StatusCode::invalid, "its value in the file has more than " +
                                        std::to_string(kLargestInitialValue) + " bytes");
  }

  [[nodiscard]] std::string bytes_of(const WireRange& content) {
    if (content.size() > kLargestInitialValue) {
      too_large();
      return {};
    }
    return wire_.text(content, kLargestInitialValue);
  }

  WireReader wire_;
  const OnnxTensor& input_;
  bool found_ = false;
  std::vector<std::byte> value_;
};

}  // namespace
}  // namespace onnx_ranges

Result<std::vector<std::byte>> read_initial_value(const std::filesystem::path& file,
                                                  const OnnxTensor& input) {
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!opened.valid() || ::fstat(opened.get(), &facts) != 0)
    return unreadable(std::strerror(errno));
  FileSource source(opened.get(), static_cast<std::uint64_t>(facts.st_size));
  return onnx_ranges::ValueReader(source, input).read();
}

Result<std::vector<std::byte>> parse_initial_value(std::span<const std::byte> bytes,
                                                   const OnnxTensor& input) {
  MemorySource source(bytes);
  return onnx_ranges::ValueReader(source, input).read();
}

}  // namespace gpulet::config
