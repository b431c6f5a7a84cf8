#include "gpulet/config/onnx_signature.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "config/file_kinds.h"
#include "config/reading.h"
#include "config/wire_reader.h"
#include "gpulet/base/files.h"

namespace gpulet::config {
namespace {

// The numbers of the fields that are read, by message of onnx.proto.
namespace model {
constexpr std::uint64_t kFormatVersion = 1;
constexpr std::uint64_t kGraph = 7;
constexpr std::uint64_t kFunction = 25;
}  // namespace model
namespace graph {
constexpr std::uint64_t kNode = 1;
constexpr std::uint64_t kInitializer = 5;
constexpr std::uint64_t kInput = 11;
constexpr std::uint64_t kOutput = 12;
constexpr std::uint64_t kSparseInitializer = 15;
}  // namespace graph
namespace function {
constexpr std::uint64_t kNode = 7;
}  // namespace function
namespace node {
constexpr std::uint64_t kOperation = 4;
constexpr std::uint64_t kAttribute = 5;
}  // namespace node
namespace attribute {
constexpr std::uint64_t kName = 1;
constexpr std::uint64_t kTensor = 5;
constexpr std::uint64_t kGraph = 6;
constexpr std::uint64_t kTensors = 10;
constexpr std::uint64_t kGraphs = 11;
constexpr std::uint64_t kType = 20;
constexpr std::uint64_t kSparseTensor = 22;
}  // namespace attribute
namespace value {
constexpr std::uint64_t kName = 1;
constexpr std::uint64_t kType = 2;
}  // namespace value
namespace type {
constexpr std::uint64_t kTensor = 1;  // also of the tensor's type: the number of its elements' type
constexpr std::uint64_t kElementType = 1;
constexpr std::uint64_t kShape = 2;
constexpr std::uint64_t kSequence = 4;
constexpr std::uint64_t kMap = 5;
constexpr std::uint64_t kDenotation = 6;
constexpr std::uint64_t kSparseTensor = 8;
constexpr std::uint64_t kOptional = 9;
}  // namespace type
namespace shape {
constexpr std::uint64_t kDimension = 1;
constexpr std::uint64_t kSize = 1;
constexpr std::uint64_t kSymbol = 2;
}  // namespace shape
namespace weights {
constexpr std::uint64_t kSparseValues = 1;
constexpr std::uint64_t kName = 8;
constexpr std::uint64_t kPlace = 14;
constexpr std::uint64_t kInOtherFile = 1;
}  // namespace weights

// What the nodes say, in the graph, the graphs inside it and the functions.
struct NodeFacts {
  bool external_data = false;
  bool random = false;
};

// Reads nodes. It has limits of its own and no failure, because a model is valid without it.
class NodeReader {
 public:
  explicit NodeReader(ByteSource& source) : wire_(source, kMostOnnxFields) {}

  void read_graph(WireRange rest, unsigned depth = 0) {
    while (const auto field = wire_.next(rest)) {
      if (!field->has_content) continue;
      if (field->number == graph::kNode) read_node(field->content, depth);
      // The reader of the signature has seen the weights outside.
      if (depth > 0 && field->number == graph::kInitializer) read_tensor(field->content);
    }
  }

  void read_function(WireRange rest) {
    while (const auto field = wire_.next(rest)) {
      if (field->number == function::kNode && field->has_content) read_node(field->content, 0);
    }
  }

  // What lies beyond the limits may be random.
  [[nodiscard]] NodeFacts facts() const {
    return {.external_data = facts_.external_data, .random = facts_.random || !wire_.status().ok()};
  }

 private:
  static constexpr unsigned kDeepest = 32;  // of graphs in graphs

  void read_node(WireRange rest, unsigned depth) {
    while (const auto field = wire_.next(rest)) {
      if (!field->has_content) continue;
      if (field->number == node::kOperation) {
        facts_.random = facts_.random || is_random(field->content);
      } else if (field->number == node::kAttribute) {
        read_attribute(field->content, depth);
      }
    }
  }

  // Dropout draws in training mode only, which an input may set.
  [[nodiscard]] bool is_random(const WireRange& content) {
    constexpr std::size_t kLongest = 20;
    if (content.size() > kLongest) return false;
    const std::string name = wire_.text(content, kLongest);
    return name.starts_with("Random") || name == "Multinomial" || name == "Bernoulli" ||
           name == "Dropout";
  }

  // Stops at a list of numbers, which may be long: then the attribute has nothing else.
  void read_attribute(WireRange rest, unsigned depth) {
    while (const auto field = wire_.next(rest)) {
      switch (field->number) {
        case attribute::kName:
        case attribute::kType:
          break;
        case attribute::kTensor:
        case attribute::kTensors:
          if (field->has_content) read_tensor(field->content);
          break;
        case attribute::kSparseTensor:
          if (field->has_content) read_sparse_tensor(field->content);
          break;
        case attribute::kGraph:
        case attribute::kGraphs:
          if (field->has_content && depth < kDeepest) read_graph(field->content, depth + 1);
          break;
        default:
          return;
      }
    }
  }

  void read_sparse_tensor(WireRange rest) {
    while (const auto field = wire_.next(rest)) {
      if (field->number == weights::kSparseValues && field->has_content)
        read_tensor(field->content);
    }
  }

  void read_tensor(WireRange rest) {
    while (const auto field = wire_.next(rest)) {
      if (field->number == weights::kPlace && !field->has_content &&
          field->value == weights::kInOtherFile)
        facts_.external_data = true;
    }
  }

  WireReader wire_;
  NodeFacts facts_;
};

class SignatureReader {
 public:
  explicit SignatureReader(ByteSource& source) : source_(source), wire_(source, kMostOnnxFields) {}

  [[nodiscard]] Result<OnnxSignature> read() {
    std::optional<WireRange> found;
    bool has_version = false;
    WireRange rest = wire_.all();
    while (const auto field = wire_.next(rest)) {
      has_version = has_version || (field->number == model::kFormatVersion && !field->has_content);
      if (field->number != model::kGraph || !field->has_content) continue;
      if (found) wire_.fail(StatusCode::invalid, "it has two graphs");
      found = field->content;
    }
    if (wire_.status().ok() && (!found || !has_version))
      wire_.fail(StatusCode::invalid, "it has no version or no graph");
    OnnxSignature signature;
    if (wire_.status().ok()) {
      read_tensors(*found, signature);
      // After the inputs, so that only their names are kept.
      read_weights(*found, signature);
    }
    if (wire_.status().ok() && signature.outputs.empty())
      wire_.fail(StatusCode::invalid, "its graph has no output");
    if (!wire_.status().ok()) return failure();
    const NodeFacts facts = read_nodes(*found);
    signature.external_data = signature.external_data || facts.external_data;
    signature.random = facts.random;
    return signature;
  }

 private:
  [[nodiscard]] Status failure() {
    if (wire_.status().code() != StatusCode::invalid) return wire_.status();
    const auto kind = kind_of_other_file(head());
    return {StatusCode::invalid,
            "it is not an ONNX model: " +
                (kind ? "it is " + *kind : wire_.status().message() + "; export it again")};
  }

  [[nodiscard]] NodeFacts read_nodes(const WireRange& graph) {
    NodeReader nodes(source_);
    nodes.read_graph(graph);
    WireRange rest = wire_.all();
    while (const auto field = wire_.next(rest)) {
      if (field->number == model::kFunction && field->has_content)
        nodes.read_function(field->content);
    }
    return nodes.facts();
  }

  // The first bytes.
  [[nodiscard]] std::string head() {
    std::string bytes(static_cast<std::size_t>(std::min<std::uint64_t>(kHeadBytes, source_.size())),
                      '\0');
    return source_.read(0, std::as_writable_bytes(std::span(bytes))).ok() ? bytes : "\xff";
  }

  void read_tensors(WireRange rest, OnnxSignature& signature) {
    while (const auto field = wire_.next(rest)) {
      const bool input = field->number == graph::kInput;
      if (!field->has_content || (!input && field->number != graph::kOutput)) continue;
      auto& tensors = input ? signature.inputs : signature.outputs;
      if (tensors.size() == kMostOnnxTensors)
        return wire_.fail(StatusCode::invalid, "it has too many inputs or outputs");
      tensors.push_back(read_tensor(field->content));
    }
  }

  [[nodiscard]] OnnxTensor read_tensor(WireRange rest) {
    OnnxTensor tensor;
    while (const auto field = wire_.next(rest)) {
      if (!field->has_content) continue;
      if (field->number == value::kName) tensor.name = name(field->content);
      if (field->number == value::kType) read_type(field->content, tensor);
    }
    return tensor;
  }

  void read_type(WireRange rest, OnnxTensor& tensor) {
    while (const auto field = wire_.next(rest)) {
      if (!field->has_content || field->number == type::kDenotation) continue;
      tensor.kind = kind_of(field->number);
      if (tensor.kind == OnnxKind::tensor) read_tensor_type(field->content, tensor);
    }
  }

  [[nodiscard]] static OnnxKind kind_of(std::uint64_t field) {
    switch (field) {
      case type::kTensor:
        return OnnxKind::tensor;
      case type::kSequence:
        return OnnxKind::sequence;
      case type::kMap:
        return OnnxKind::map;
      case type::kSparseTensor:
        return OnnxKind::sparse_tensor;
      case type::kOptional:
        return OnnxKind::optional;
      default:
        return OnnxKind::other;
    }
  }

  void read_tensor_type(WireRange rest, OnnxTensor& tensor) {
    while (const auto field = wire_.next(rest)) {
      if (field->number == type::kElementType && !field->has_content)
        tensor.element_type = static_cast<std::int32_t>(field->value);
      if (field->number == type::kShape && field->has_content)
        tensor.shape = read_shape(field->content);
    }
  }

  [[nodiscard]] std::vector<OnnxDimension> read_shape(WireRange rest) {
    std::vector<OnnxDimension> dimensions;
    while (const auto field = wire_.next(rest)) {
      if (field->number != shape::kDimension || !field->has_content) continue;
      if (dimensions.size() == kMostOnnxDimensions) {
        wire_.fail(StatusCode::invalid, "a tensor has too many dimensions");
        break;
      }
      dimensions.push_back(read_dimension(field->content));
    }
    return dimensions;
  }

  [[nodiscard]] OnnxDimension read_dimension(WireRange rest) {
    OnnxDimension dimension;
    while (const auto field = wire_.next(rest)) {
      // Size and symbol exclude each other: the last one holds.
      if (field->number == shape::kSize && !field->has_content) {
        const auto size = static_cast<std::int64_t>(field->value);
        dimension = {.size = size < 0 ? OnnxDimension::kAny : size};
      }
      if (field->number == shape::kSymbol && field->has_content)
        dimension = {.name = name(field->content)};
    }
    return dimension;
  }

  void read_weights(WireRange rest, OnnxSignature& signature) {
    while (const auto field = wire_.next(rest)) {
      if (!field->has_content) continue;
      if (field->number == graph::kInitializer) read_weight(field->content, signature);
      if (field->number == graph::kSparseInitializer) read_sparse_weight(field->content, signature);
    }
  }

  void read_sparse_weight(WireRange rest, OnnxSignature& signature) {
    while (const auto field = wire_.next(rest)) {
      if (field->number == weights::kSparseValues && field->has_content)
        read_weight(field->content, signature);
    }
  }

  // An input with a value in the file need not be given. Names of weights are unique, and those of
  // inputs, too.
  void read_weight(WireRange rest, OnnxSignature& signature) {
    while (const auto field = wire_.next(rest)) {
      if (field->number == weights::kPlace && !field->has_content)
        signature.external_data = signature.external_data || field->value == weights::kInOtherFile;
      if (field->number != weights::kName || !field->has_content) continue;
      const std::string weight = name(field->content);
      const auto input = std::find_if(signature.inputs.begin(), signature.inputs.end(),
                                      [&weight](const auto& one) { return one.name == weight; });
      if (input == signature.inputs.end()) continue;
      signature.optional_inputs.push_back(std::move(*input));
      signature.inputs.erase(input);
    }
  }

  [[nodiscard]] std::string name(const WireRange& content) {
    return wire_.text(content, kLongestOnnxName);
  }

  ByteSource& source_;
  WireReader wire_;
};

}  // namespace

Result<OnnxSignature> parse_onnx_signature(std::span<const std::byte> bytes) {
  MemorySource source(bytes);
  return SignatureReader(source).read();
}

Result<OnnxSignature> read_onnx_signature(int descriptor) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return unreadable(std::strerror(errno));
  const auto bytes = static_cast<std::uint64_t>(facts.st_size);
  if (bytes > kLargestOnnxFile) {
    return Status(StatusCode::invalid,
                  "it is not an ONNX model: it has more than 2 GiB; export it again");
  }
  FileSource source(descriptor, bytes);
  return SignatureReader(source).read();
}

Result<OnnxSignature> read_onnx_signature(const std::filesystem::path& file) {
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.valid()) return unreadable(std::strerror(errno));
  return read_onnx_signature(opened.get());
}

// ---- comparing with a declaration

namespace {

struct ElementType {
  std::string_view name;
  std::optional<DataType> type{};
};
// By number.
constexpr std::array kElementTypes{
    ElementType{"unknown"},
    ElementType{"FP32", DataType::fp32},
    ElementType{"UINT8", DataType::uint8},
    ElementType{"INT8", DataType::int8},
    ElementType{"UINT16"},
    ElementType{"INT16", DataType::int16},
    ElementType{"INT32", DataType::int32},
    ElementType{"INT64", DataType::int64},
    ElementType{"STRING", DataType::bytes},
    ElementType{"BOOL", DataType::boolean},
    ElementType{"FP16", DataType::fp16},
    ElementType{"FP64", DataType::fp64},
    ElementType{"UINT32"},
    ElementType{"UINT64"},
    ElementType{"COMPLEX64"},
    ElementType{"COMPLEX128"},
    ElementType{"BF16", DataType::bf16},
};

const ElementType& element_type_of(std::int32_t number) {
  const bool known = number > 0 && static_cast<std::size_t>(number) < kElementTypes.size();
  return kElementTypes.at(known ? static_cast<std::size_t>(number) : 0);
}

std::string_view name_of(OnnxKind kind) {
  constexpr std::array<std::string_view, 6> kNames{"tensor",        "sequence", "map",
                                                   "sparse tensor", "optional", "of another kind"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string symbol_of(const OnnxDimension& dimension) {
  const bool printable = !dimension.name.empty() &&
                         std::none_of(dimension.name.begin(), dimension.name.end(), is_control);
  return printable ? dimension.name : "?";
}

Status differs(const std::string& what, const std::string& fix) {
  return {StatusCode::invalid, what + "; " + fix};
}

std::string list(const std::vector<OnnxTensor>& tensors) {
  std::string text;
  for (const OnnxTensor& tensor : tensors) text += (text.empty() ? "" : ", ") + to_string(tensor);
  return text.empty() ? "none" : text;
}

bool is_any(const OnnxDimension& dimension) { return dimension.size == OnnxDimension::kAny; }

bool fits(const std::vector<OnnxDimension>& found, const std::vector<std::int64_t>& declared) {
  return std::equal(found.begin(), found.end(), declared.begin(), declared.end(),
                    [](const OnnxDimension& dimension, std::int64_t size) {
                      return is_any(dimension) || dimension.size == size;
                    });
}

// Where the first dimension has one size.
Status other_batch(const std::string& found, const std::vector<OnnxDimension>& shape) {
  const auto any = std::find_if(shape.begin(), shape.end(), is_any);
  const std::int64_t first = shape.front().size;
  if (first != 1 && any != shape.end()) {
    return differs(
        fmt::format("{}: its first dimension is always {}, and the batch may be its dimension {}",
                    found, first, any - shape.begin() + 1),
        "export a model whose inputs and outputs have the batch in front: wrap it in one that "
        "transposes them");
  }
  return differs(fmt::format("{}: it takes batches of {} only", found, first),
                 R"(export it with a first dimension of any size, or, where that size is 1, set )"
                 R"("max_batch" to 1 (gpulet serve: --max-batch 1))");
}

Status check_shape(const OnnxTensor& tensor, const TensorSpec& declared, const std::string& which,
                   std::uint32_t max_batch) {
  if (!tensor.shape) return {};
  const std::vector<OnnxDimension>& shape = *tensor.shape;
  const std::string found = fmt::format("{} of the file is {}", which, to_string(tensor));
  if (declared.whole) {
    if (fits(shape, declared.shape)) return {};
    return differs(
        fmt::format("{}, but declared is {} without a batch dimension", found, to_string(declared)),
        R"(correct the declared shape, which is the whole tensor's with "max_batch" 0)");
  }
  if (shape.empty() || (fits(shape, declared.shape) && !is_any(shape.front()))) {
    return differs(
        found + ", which has no batch dimension",
        R"(set "max_batch" to 0 (gpulet serve: --max-batch 0) and declare the shapes of )"
        "whole tensors; such a model runs one request at a time");
  }
  if (!fits({shape.begin() + 1, shape.end()}, declared.shape)) {
    return differs(
        fmt::format("{}, but declared is {} after the batch dimension", found, to_string(declared)),
        "correct the declared shape");
  }
  if (is_any(shape.front()) || (shape.front().size == 1 && max_batch == 1)) return {};
  return other_batch(found, shape);
}

Status check_tensors(const std::vector<OnnxTensor>& found, const std::vector<TensorSpec>& declared,
                     const std::string& kind, std::uint32_t max_batch) {
  for (const TensorSpec& spec : declared) {
    const std::string which = fmt::format("{} {}", kind, in_quotes(spec.name));
    const auto tensor = std::find_if(found.begin(), found.end(), [&spec](const OnnxTensor& each) {
      return each.name == spec.name;
    });
    if (tensor == found.end()) {
      return differs(fmt::format("the file has no {}; its {}s are: {}", which, kind, list(found)),
                     "declare these names");
    }
    if (Status kind_fits = check_kind(*tensor); !kind_fits.ok()) return kind_fits;
    const ElementType& type = element_type_of(tensor->element_type);
    if (type.type != spec.type) {
      return differs(fmt::format("{} of the file is {}, but declared is {}", which,
                                 to_string(*tensor), to_string(spec.type)),
                     type.type ? "correct the declared type" : "export it with another type");
    }
    if (Status status = check_shape(*tensor, spec, which, max_batch); !status.ok()) return status;
  }
  return {};
}

}  // namespace

std::optional<DataType> data_type_of(std::int32_t element_type) {
  return element_type_of(element_type).type;
}

Status check_kind(const OnnxTensor& tensor) {
  const std::string found = to_string(tensor);
  switch (tensor.kind) {
    case OnnxKind::tensor:
      return {};
    case OnnxKind::sequence:
      return differs(found + ": a sequence is not served, only tensors",
                     "for a classifier of scikit-learn, convert it with the option zipmap=False; "
                     "else export it without this output or input");
    case OnnxKind::optional:
      return differs(found + ": an optional value is not served, only tensors",
                     "export it so that the value is always there");
    case OnnxKind::sparse_tensor:
      return differs(found + ": a sparse tensor is not served", "export it as a dense one");
    default:
      return differs(found + ": it is not a tensor, and only tensors are served",
                     "export it without this output or input");
  }
}

std::string to_string(const OnnxTensor& tensor) {
  if (tensor.kind != OnnxKind::tensor)
    return fmt::format("{} {}", in_quotes(tensor.name), name_of(tensor.kind));
  std::string text =
      fmt::format("{} {}", in_quotes(tensor.name), element_type_of(tensor.element_type).name);
  if (!tensor.shape) return text;
  std::string sizes;
  for (const OnnxDimension& dimension : *tensor.shape) {
    const bool any = dimension.size == OnnxDimension::kAny;
    const std::string size = any ? symbol_of(dimension) : std::to_string(dimension.size);
    sizes += (sizes.empty() ? "" : ",") + size;
  }
  return text + "[" + sizes + "]";
}

Status check_declared(const OnnxSignature& signature, const std::vector<TensorSpec>& inputs,
                      const std::vector<TensorSpec>& outputs, std::uint32_t max_batch) {
  if (signature.external_data) {
    return differs("some of its weights are in other files",
                   "export it with all weights in one file");
  }
  std::vector<OnnxTensor> possible = signature.inputs;
  possible.insert(possible.end(), signature.optional_inputs.begin(),
                  signature.optional_inputs.end());
  Status status = check_tensors(possible, model_inputs(inputs), "input", max_batch);
  if (status.ok()) status = check_tensors(signature.outputs, outputs, "output", max_batch);
  if (!status.ok()) return status;
  const bool complete =
      std::all_of(signature.inputs.begin(), signature.inputs.end(), [&inputs](const auto& needed) {
        return std::any_of(inputs.begin(), inputs.end(),
                           [&needed](const TensorSpec& one) { return one.name == needed.name; });
      });
  if (complete) return {};
  return differs(fmt::format("the file needs {} inputs, but {} are declared; its inputs are: {}",
                             signature.inputs.size(), inputs.size(), list(signature.inputs)),
                 "declare all of them");
}

}  // namespace gpulet::config
