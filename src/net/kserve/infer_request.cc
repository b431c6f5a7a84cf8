#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "elements.h"
#include "gpulet/net/kserve/http_api.h"
#include "infer_document.h"
#include "json_events.h"
#include "tensor_json.h"
#include "wording.h"

namespace gpulet::net::kserve {
namespace {

constexpr std::string_view kJsonLength = "Inference-Header-Content-Length";

// How many bytes of the body are JSON; nothing: all of them, there is no header.
Result<std::optional<std::size_t>> json_length(const http::Headers& headers, std::size_t body) {
  const std::string_view text = http::find_header(headers, kJsonLength);
  if (text.empty()) return std::optional<std::size_t>();
  std::size_t length = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (failure != std::errc() || end != text.data() + text.size() || length > body) {
    return invalid("header " + std::string(kJsonLength) + " must be an integer from 0 to the " +
                   std::to_string(body) + " bytes of the body; was " + in_quotes(text));
  }
  return std::optional(length);
}

DocumentLimits limits_of(const Model& model) {
  DocumentLimits limits{
      .model = model.name, .inputs = model.inputs.size(), .outputs = model.outputs.size()};
  for (const TensorSpec& spec : model.inputs) {
    const Result<std::size_t> bytes = byte_size(spec);
    if (!bytes.ok()) continue;  // rows_of refuses it
    limits.values = std::max(limits.values, bytes.value() / byte_size(spec.type) * model.max_batch);
  }
  return limits;
}

// The part of the body behind the JSON, taken from its front.
class Blobs {
 public:
  explicit Blobs(Bytes bytes) : bytes_(std::move(bytes)) {}

  Result<Bytes> take(const std::string& input, std::uint64_t length) {
    const std::size_t left = bytes_.size() - taken_;
    if (length > left) {
      return invalid("input " + in_quotes(input) + ": 'binary_data_size' is " +
                     std::to_string(length) + ", but only " + std::to_string(left) +
                     " bytes of binary data are left in the body");
    }
    Bytes blob = bytes_.slice(taken_, length);
    taken_ += length;
    return blob;
  }

  [[nodiscard]] Status all_taken() const {
    if (taken_ == bytes_.size()) return {};
    return invalid("the body has " + std::to_string(bytes_.size() - taken_) +
                   " bytes of binary data more than its inputs name");
  }

 private:
  Bytes bytes_;
  std::size_t taken_ = 0;
};

// The bytes of an input, wherever they are: one place exactly.
Result<Bytes> data_of(const InputDocument& document, const GivenInput& input, const Model& model,
                      const SharedMemory& regions, Blobs& blobs) {
  const Result<std::optional<RegionSlice>> region = region_of(document.parameters);
  if (!region.ok()) return region.status().within("input " + in_quotes(input.name));
  const auto& binary = document.parameters.binary_data_size;
  const int places = (region.value() ? 1 : 0) + (binary ? 1 : 0) + (document.has_data ? 1 : 0);
  if (places != 1) {
    return invalid("input " + in_quotes(input.name) +
                   " must have one of 'data', 'binary_data_size' and 'shared_memory_region'; has " +
                   std::to_string(places));
  }
  if (binary) return blobs.take(input.name, *binary);
  if (document.has_data) return bytes_of_numbers(input.name, input.type, document.data);
  if (Status fits = check_input(model, input, region.value()->bytes); !fits.ok()) return fits;
  return regions.read(*region.value());
}

Result<GivenInput> input_of(InputDocument& document, const Model& model,
                            const SharedMemory& regions, Blobs& blobs) {
  GivenInput input;
  input.name = std::move(document.name);
  if (input.name.empty()) return invalid("every input must have a 'name'");
  if (document.datatype.empty())
    return invalid("input " + in_quotes(input.name) + " must have a 'datatype'");
  if (!document.has_shape)
    return invalid("input " + in_quotes(input.name) + " must have a 'shape'");
  const std::optional<DataType> type = parse_data_type(document.datatype);
  if (!type) {
    return invalid("input " + in_quotes(input.name) + ": no model here takes datatype " +
                   in_quotes(document.datatype));
  }
  input.type = *type;
  input.shape = std::move(document.shape);
  Result<Bytes> data = data_of(document, input, model, regions, blobs);
  if (!data.ok()) return data.status();
  input.data = std::move(data).value();
  return input;
}

// The whole body is one row of the only input.
Result<InferCall> read_raw(const Bytes& body, const Model& model) {
  if (model.inputs.size() != 1) {
    return invalid("a raw body (" + std::string(kJsonLength) +
                   ": 0) fits models of one input; model " + in_quotes(model.name) + " has " +
                   std::to_string(model.inputs.size()));
  }
  GivenInput input;
  input.name = model.inputs[0].name;
  input.type = model.inputs[0].type;
  input.shape = model.inputs[0].shape;
  input.shape.insert(input.shape.begin(), 1);
  input.data = body;
  Result<InferCall> call = call_of(model, {std::move(input)}, Duration::zero());
  if (!call.ok()) return call;
  Result<std::vector<AskedOutput>> outputs = asked_outputs({}, true, model);
  if (!outputs.ok()) return outputs.status();
  call.value().outputs = std::move(outputs).value();
  return call;
}

// `bytes_of`: of one number.
template <typename BytesOf>
std::size_t largest_inference(std::span<const TensorSpec> inputs, std::uint32_t max_rows,
                              BytesOf bytes_of) {
  constexpr std::size_t kRest = 64U << 10U;  // names, shapes, parameters
  constexpr std::size_t kMost = std::size_t{1} << 40U;
  const std::size_t rows = std::max<std::size_t>(max_rows, 1);
  std::size_t bytes = kRest;
  for (const TensorSpec& spec : inputs) {
    const Result<std::size_t> row = byte_size(spec);
    const std::size_t per_number = bytes_of(spec.type);
    if (!row.ok() || row.value() > kMost / per_number / rows) return kMost;
    bytes += row.value() / byte_size(spec.type) * per_number * rows;
  }
  return std::min(bytes, kMost);
}

}  // namespace

std::size_t largest_infer_body(const Model& model) {
  static constexpr std::size_t kBytesPerNumber = 40U;  // with a line and an indentation of its own
  return largest_inference(model.inputs, model.max_batch, [](DataType) { return kBytesPerNumber; });
}

std::size_t largest_infer_message(std::span<const TensorSpec> inputs, std::uint32_t rows) {
  static constexpr std::size_t kLongestInteger = 10;  // of protobuf: a negative number
  return largest_inference(
      inputs, rows, [](DataType type) { return std::max(byte_size(type), kLongestInteger); });
}

Result<InferCall> read_infer(const http::Headers& headers, const Bytes& body, const Model& model,
                             const SharedMemory& regions) {
  const Result<std::optional<std::size_t>> length = json_length(headers, body.size());
  if (!length.ok()) return length.status();
  if (length.value() == 0U) return read_raw(body, model);
  const std::size_t json_bytes = length.value().value_or(body.size());
  Result<InferDocument> read =
      read_document(text_of(body.view().first(json_bytes)), limits_of(model));
  if (!read.ok()) return read.status();
  InferDocument& document = read.value();
  Result<std::vector<AskedOutput>> outputs =
      asked_outputs(document.outputs, document.parameters.binary_data_output, model);
  if (!outputs.ok()) return outputs.status();
  Blobs blobs(body.slice(json_bytes, body.size() - json_bytes));
  std::vector<GivenInput> inputs;
  inputs.reserve(document.inputs.size());
  for (InputDocument& one : document.inputs) {
    Result<GivenInput> input = input_of(one, model, regions, blobs);
    if (!input.ok()) return input.status();
    inputs.push_back(std::move(input).value());
  }
  if (Status taken = blobs.all_taken(); !taken.ok()) return taken;
  Result<InferCall> call =
      call_of(model, std::move(inputs), document.parameters.timeout, document.parameters.priority);
  if (!call.ok()) return call;
  call.value().id = std::move(document.id);
  call.value().outputs = std::move(outputs).value();
  return call;
}

}  // namespace gpulet::net::kserve
