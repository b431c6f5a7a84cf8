#include "gpulet/config/onnx_signature.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "config/reading.h"
#include "config/wire_reader.h"
#include "gpulet/base/file_descriptor.h"

namespace gpulet::config {
namespace {

// The numbers of the fields that are read, by message of onnx.proto.
namespace model {
constexpr std::uint64_t kFormatVersion = 1;
constexpr std::uint64_t kGraph = 7;
}  // namespace model
namespace graph {
constexpr std::uint64_t kInitializer = 5;
constexpr std::uint64_t kInput = 11;
constexpr std::uint64_t kOutput = 12;
constexpr std::uint64_t kSparseInitializer = 15;
}  // namespace graph
namespace value {
constexpr std::uint64_t kName = 1;
constexpr std::uint64_t kType = 2;
}  // namespace value
namespace type {
constexpr std::uint64_t kTensor = 1;  // also of the tensor's type: the number of its elements' type
constexpr std::uint64_t kElementType = 1;
constexpr std::uint64_t kShape = 2;
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

class SignatureReader {
 public:
  explicit SignatureReader(ByteSource& source) : wire_(source, kMostOnnxFields) {}

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
    return signature;
  }

 private:
  [[nodiscard]] Status failure() const {
    if (wire_.status().code() != StatusCode::invalid) return wire_.status();
    return {StatusCode::invalid,
            "it is not an ONNX model: " + wire_.status().message() + "; export it again"};
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
      if (field->number == type::kTensor && field->has_content)
        read_tensor_type(field->content, tensor);
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

  // An input with a value in the file need not be given.
  void read_weight(WireRange rest, OnnxSignature& signature) {
    while (const auto field = wire_.next(rest)) {
      if (field->number == weights::kPlace && !field->has_content)
        signature.external_data = signature.external_data || field->value == weights::kInOtherFile;
      if (field->number != weights::kName || !field->has_content) continue;
      const std::string weight = name(field->content);
      std::erase_if(signature.inputs,
                    [&weight](const OnnxTensor& input) { return input.name == weight; });
    }
  }

  [[nodiscard]] std::string name(const WireRange& content) {
    return wire_.text(content, kLongestOnnxName);
  }

  WireReader wire_;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }
  [[nodiscard]] Status read(std::uint64_t offset, std::span<std::byte> bytes) override {
    const auto part = bytes_.subspan(static_cast<std::size_t>(offset), bytes.size());
    std::copy(part.begin(), part.end(), bytes.begin());
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
};

Status unreadable(const char* why) {
  return {StatusCode::unavailable, fmt::format("it cannot be read: {}", why)};
}

class FileSource final : public ByteSource {
 public:
  FileSource(int descriptor, std::uint64_t size) : descriptor_(descriptor), size_(size) {}
  [[nodiscard]] std::uint64_t size() const override { return size_; }
  [[nodiscard]] Status read(std::uint64_t offset, std::span<std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t got =
          ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return unreadable(std::strerror(errno));
      if (got == 0) return unreadable("it shrank while it was read");
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
    return {};
  }

 private:
  int descriptor_;
  std::uint64_t size_;
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

Status check_shape(const OnnxTensor& tensor, const TensorSpec& declared, const std::string& which,
                   std::uint32_t max_batch) {
  if (!tensor.shape) return {};
  const std::vector<OnnxDimension>& shape = *tensor.shape;
  const std::string found = fmt::format("{} of the file is {}", which, to_string(tensor));
  bool equal = shape.size() == declared.shape.size() + 1;
  for (std::size_t i = 0; equal && i < declared.shape.size(); ++i) {
    const std::int64_t size = shape[i + 1].size;
    equal = size == OnnxDimension::kAny || size == declared.shape[i];
  }
  if (!equal) {
    return differs(
        fmt::format("{}, but declared is {} after the batch dimension", found, to_string(declared)),
        "correct the declared shape");
  }
  const std::int64_t batch = shape.front().size;
  if (batch == OnnxDimension::kAny || (batch == 1 && max_batch == 1)) return {};
  return differs(fmt::format("{}: it takes batches of {} only", found, batch),
                 R"(export it with a first dimension of any size, or set "max_batch" to 1 where )"
                 "that is its size");
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

std::string to_string(const OnnxTensor& tensor) {
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
  Status status = check_tensors(signature.inputs, inputs, "input", max_batch);
  if (status.ok()) status = check_tensors(signature.outputs, outputs, "output", max_batch);
  if (!status.ok() || signature.inputs.size() <= inputs.size()) return status;
  return differs(fmt::format("the file has {} inputs, but {} are declared; its inputs are: {}",
                             signature.inputs.size(), inputs.size(), list(signature.inputs)),
                 "declare all of them");
}

}  // namespace gpulet::config
