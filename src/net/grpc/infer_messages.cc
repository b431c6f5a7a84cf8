#include "infer_messages.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpulet::net::grpc_api {
namespace {

using inference::InferParameter;
using inference::InferTensorContents;
using Parameters = google::protobuf::Map<std::string, InferParameter>;

Status invalid(std::string message) { return {StatusCode::invalid, std::move(message)}; }

// ---- parameters

const InferParameter* find(const Parameters& parameters, const char* name) {
  const auto found = parameters.find(name);
  return found == parameters.end() ? nullptr : &found->second;
}

// Nothing where there is none. Fails where it is not an integer of at least 0.
Result<std::optional<std::uint64_t>> natural(const Parameters& parameters, const char* name) {
  const InferParameter* const given = find(parameters, name);
  if (given == nullptr) return std::optional<std::uint64_t>();
  if (given->parameter_choice_case() == InferParameter::kUint64Param)
    return std::optional<std::uint64_t>(given->uint64_param());
  if (given->parameter_choice_case() == InferParameter::kInt64Param && given->int64_param() >= 0)
    return std::optional<std::uint64_t>(static_cast<std::uint64_t>(given->int64_param()));
  return invalid("parameter '" + std::string(name) + "' must be an integer of at least 0");
}

Result<Duration> timeout_of(const Parameters& parameters) {
  for (const char* const sequence : {"sequence_id", "sequence_start", "sequence_end"}) {
    if (find(parameters, sequence) != nullptr)
      return invalid("parameter '" + std::string(sequence) +
                     "' is not supported: requests are batched without regard to sequences");
  }
  const auto priority = natural(parameters, "priority");
  if (!priority.ok()) return priority.status();
  const auto timeout = natural(parameters, "timeout");
  if (!timeout.ok()) return timeout.status();
  constexpr std::uint64_t kLongestMicroseconds = std::uint64_t{24} * 3600 * 1000 * 1000;
  return Duration(
      std::chrono::microseconds(std::min(timeout.value().value_or(0), kLongestMicroseconds)));
}

// Nothing where the tensor is not in shared memory.
Result<std::optional<kserve::RegionSlice>> region_of(const Parameters& parameters) {
  const InferParameter* const region = find(parameters, "shared_memory_region");
  if (region == nullptr) return std::optional<kserve::RegionSlice>();
  const auto bytes = natural(parameters, "shared_memory_byte_size");
  if (!bytes.ok()) return bytes.status();
  const auto offset = natural(parameters, "shared_memory_offset");
  if (!offset.ok()) return offset.status();
  if (region->parameter_choice_case() != InferParameter::kStringParam || !bytes.value()) {
    return invalid(
        "a tensor in shared memory needs 'shared_memory_region' (a name) and "
        "'shared_memory_byte_size'");
  }
  return std::optional(kserve::RegionSlice{.region = region->string_param(),
                                           .offset = offset.value().value_or(0),
                                           .bytes = *bytes.value()});
}

// ---- inputs

// The elements as bytes. Fails where one does not fit the type.
template <typename Element, typename Field>
Result<Bytes> bytes_of(const Field& field, const std::string& input) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(field.size()) * sizeof(Element));
  std::size_t at = 0;
  for (const auto& value : field) {
    const auto element = static_cast<Element>(value);
    if constexpr (std::is_integral_v<Element> && !std::is_same_v<Element, bool>) {
      if (static_cast<std::remove_cvref_t<decltype(value)>>(element) != value)
        return invalid("input '" + input + "': " + std::to_string(value) +
                       " does not fit its datatype");
    }
    std::memcpy(bytes.data() + at, &element, sizeof element);
    at += sizeof element;
  }
  return Bytes::own(std::move(bytes));
}

Result<Bytes> elements_of(const InferTensorContents& contents, DataType type,
                          const std::string& input) {
  switch (type) {
    case DataType::boolean:
      return bytes_of<bool>(contents.bool_contents(), input);
    case DataType::uint8:
      return bytes_of<std::uint8_t>(contents.uint_contents(), input);
    case DataType::int8:
      return bytes_of<std::int8_t>(contents.int_contents(), input);
    case DataType::int16:
      return bytes_of<std::int16_t>(contents.int_contents(), input);
    case DataType::int32:
      return bytes_of<std::int32_t>(contents.int_contents(), input);
    case DataType::int64:
      return bytes_of<std::int64_t>(contents.int64_contents(), input);
    case DataType::fp32:
      return bytes_of<float>(contents.fp32_contents(), input);
    case DataType::fp64:
      return bytes_of<double>(contents.fp64_contents(), input);
    case DataType::fp16:
    case DataType::bf16:
      break;
  }
  return invalid("input '" + input + "': " + std::string(to_string(type)) +
                 " tensors travel in raw_input_contents only");
}

Bytes own(std::string raw) {
  auto owner = std::make_shared<const std::string>(std::move(raw));
  const auto view = std::as_bytes(std::span(*owner));
  return {std::move(owner), view};
}

Result<std::vector<kserve::GivenInput>> inputs_of(inference::ModelInferRequest& request,
                                                  const kserve::SharedMemory& regions) {
  const bool raw = request.raw_input_contents_size() > 0;
  std::vector<kserve::GivenInput> inputs;
  int next_raw = 0;
  for (const auto& tensor : request.inputs()) {
    const auto type = parse_data_type(tensor.datatype());
    if (!type) {
      return invalid("input '" + tensor.name() + "': no model here takes datatype '" +
                     tensor.datatype() + "'");
    }
    kserve::GivenInput input;
    input.name = tensor.name();
    input.type = *type;
    input.shape.assign(tensor.shape().begin(), tensor.shape().end());
    const auto region = region_of(tensor.parameters());
    if (!region.ok()) return region.status();
    if (raw && tensor.has_contents()) {
      return invalid("contents field must not be specified when using raw_input_contents for '" +
                     tensor.name() + "'");
    }
    Result<Bytes> data = Bytes();
    if (region.value()) {
      data = regions.read(*region.value());
    } else if (!raw) {
      data = elements_of(tensor.contents(), *type, tensor.name());
    } else if (next_raw < request.raw_input_contents_size()) {
      data = own(std::move(*request.mutable_raw_input_contents(next_raw++)));
    } else {
      return invalid("raw_input_contents has fewer tensors than there are inputs");
    }
    if (!data.ok()) return data.status();
    input.data = std::move(data).value();
    inputs.push_back(std::move(input));
  }
  if (next_raw != request.raw_input_contents_size())
    return invalid("raw_input_contents has more tensors than there are inputs");
  return inputs;
}

// ---- outputs

Result<kserve::AskedOutput> asked_output(
    const inference::ModelInferRequest::InferRequestedOutputTensor& wanted,
    const kserve::Model& model) {
  const auto found =
      std::find_if(model.outputs.begin(), model.outputs.end(),
                   [&wanted](const TensorSpec& one) { return one.name == wanted.name(); });
  if (found == model.outputs.end()) {
    return invalid("unexpected inference output '" + wanted.name() + "' for model '" + model.name +
                   "'");
  }
  kserve::AskedOutput asked;
  asked.index = static_cast<std::size_t>(found - model.outputs.begin());
  asked.binary = true;
  const auto highest = natural(wanted.parameters(), "classification");
  if (!highest.ok()) return highest.status();
  asked.classification = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      highest.value().value_or(0), std::numeric_limits<std::uint32_t>::max()));
  auto region = region_of(wanted.parameters());
  if (!region.ok()) return region.status();
  asked.region = std::move(region).value();
  return asked;
}

Result<std::vector<kserve::AskedOutput>> outputs_of(const inference::ModelInferRequest& request,
                                                    const kserve::Model& model) {
  std::vector<kserve::AskedOutput> outputs;
  for (const auto& wanted : request.outputs()) {
    Result<kserve::AskedOutput> asked = asked_output(wanted, model);
    if (!asked.ok()) return asked.status();
    outputs.push_back(std::move(asked).value());
  }
  if (request.outputs().empty()) {
    for (std::size_t i = 0; i < model.outputs.size(); ++i)
      outputs.push_back({.index = i, .binary = true});
  }
  return outputs;
}

// A tensor of strings: each behind its length.
std::string lengths_and_texts(const std::vector<std::string>& texts) {
  std::string raw;
  for (const std::string& text : texts) {
    const auto length = static_cast<std::uint32_t>(text.size());
    char bytes[sizeof length];
    std::memcpy(bytes, &length, sizeof length);
    raw.append(bytes, sizeof length).append(text);
  }
  return raw;
}

}  // namespace

Result<kserve::InferCall> read_infer(inference::ModelInferRequest request,
                                     const kserve::Model& model,
                                     const kserve::SharedMemory& regions) {
  const Result<Duration> timeout = timeout_of(request.parameters());
  if (!timeout.ok()) return timeout.status();
  kserve::InferCall call;
  call.model = model.name;
  call.id = request.id();
  Result<std::vector<kserve::AskedOutput>> outputs = outputs_of(request, model);
  if (!outputs.ok()) return outputs.status();
  call.outputs = std::move(outputs).value();
  Result<std::vector<kserve::GivenInput>> inputs = inputs_of(request, regions);
  if (!inputs.ok()) return inputs.status();
  Result<std::vector<serve::InferRequest>> rows =
      kserve::rows_of(model, std::move(inputs).value(), timeout.value());
  if (!rows.ok()) return rows.status();
  call.requests = std::move(rows).value();
  call.rows = static_cast<std::uint32_t>(call.requests.size());
  return call;
}

Status write_infer(const kserve::InferCall& call, const kserve::Model& model,
                   std::span<const serve::InferReply> replies, kserve::SharedMemory& regions,
                   inference::ModelInferResponse& response) {
  Result<std::vector<kserve::AnsweredOutput>> gathered = kserve::gather(call, model, replies);
  if (!gathered.ok()) return gathered.status();
  response.set_model_name(model.name);
  response.set_model_version(model.version);
  response.set_id(call.id);
  for (std::size_t i = 0; i < gathered.value().size(); ++i) {
    const kserve::AnsweredOutput& output = gathered.value()[i];
    const std::optional<kserve::RegionSlice>& region = call.outputs[i].region;
    auto& tensor = *response.add_outputs();
    tensor.set_name(output.spec.name);
    const bool labelled = call.outputs[i].classification > 0;
    tensor.set_datatype(labelled ? "BYTES" : std::string(to_string(output.spec.type)));
    tensor.mutable_shape()->Assign(output.spec.shape.begin(), output.spec.shape.end());
    const auto view = output.data.view();
    std::string raw = labelled
                          ? lengths_and_texts(output.labels)
                          : std::string(reinterpret_cast<const char*>(view.data()), view.size());
    if (region) {
      const std::size_t bytes = raw.size();
      if (Status written = regions.write(*region, own(std::move(raw))); !written.ok())
        return written;
      auto& parameters = *tensor.mutable_parameters();
      parameters["shared_memory_region"].set_string_param(region->region);
      parameters["shared_memory_offset"].set_int64_param(static_cast<std::int64_t>(region->offset));
      parameters["shared_memory_byte_size"].set_int64_param(static_cast<std::int64_t>(bytes));
      raw.clear();
    }
    response.add_raw_output_contents(std::move(raw));
  }
  return {};
}

}  // namespace gpulet::net::grpc_api
