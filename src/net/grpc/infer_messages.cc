#include "infer_messages.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "gpulet/net/http/message.h"
#include "gpulet/net/kserve/parameters.h"

namespace gpulet::net::grpc_api {
namespace {

using inference::InferParameter;
using inference::InferTensorContents;
using Parameters = google::protobuf::Map<std::string, InferParameter>;

constexpr int kMostTensors = 64;  // as over the other protocols
constexpr int kMostDimensions = 64;
constexpr std::size_t kMostParameters = 256;

Status invalid(std::string message) { return {StatusCode::invalid, std::move(message)}; }

Status check_count(std::string_view what, std::size_t count, std::size_t most) {
  if (count <= most) return {};
  return invalid("a request may have " + std::to_string(most) + " " + std::string(what) +
                 "; this one has " + std::to_string(count));
}

// What a client sent comes back in an error, but not all of it.
std::string shown(const std::string& text) {
  constexpr std::size_t kLongest = 80;
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

// ---- parameters

kserve::Scalar scalar_of(const InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return parameter.bool_param();
    case InferParameter::kInt64Param:
      if (parameter.int64_param() < 0) return parameter.int64_param();
      return static_cast<std::uint64_t>(parameter.int64_param());
    case InferParameter::kUint64Param:
      return parameter.uint64_param();
    case InferParameter::kDoubleParam:
      return parameter.double_param();
    case InferParameter::kStringParam:
      return std::string_view(parameter.string_param());
    case InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return std::monostate();
}

// `What`: the parameters of a request or of a tensor.
template <typename What>
Result<What> read(const Parameters& given) {
  What parameters;
  for (const auto& [name, value] : given) {
    if (Status taken = kserve::take_parameter(parameters, name, scalar_of(value)); !taken.ok())
      return taken;
  }
  return parameters;
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
        return invalid("input '" + shown(input) + "': " + std::to_string(value) +
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
  return invalid("input '" + shown(input) + "': " + std::string(to_string(type)) +
                 " tensors travel in raw_input_contents only");
}

Result<std::vector<kserve::GivenInput>> inputs_of(inference::ModelInferRequest& request,
                                                  const kserve::Model& model,
                                                  const kserve::SharedMemory& regions) {
  const bool raw = request.raw_input_contents_size() > 0;
  std::vector<kserve::GivenInput> inputs;
  int next_raw = 0;
  for (const auto& tensor : request.inputs()) {
    const auto type = parse_data_type(tensor.datatype());
    if (!type) {
      return invalid("input '" + shown(tensor.name()) + "': no model here takes datatype '" +
                     shown(tensor.datatype()) + "'");
    }
    kserve::GivenInput input;
    input.name = tensor.name();
    input.type = *type;
    input.shape.assign(tensor.shape().begin(), tensor.shape().end());
    const auto parameters = read<kserve::TensorParameters>(tensor.parameters());
    if (!parameters.ok()) return parameters.status();
    const auto region = kserve::region_of(parameters.value());
    if (!region.ok()) return region.status();
    if (raw && tensor.has_contents()) {
      return invalid("contents field must not be specified when using raw_input_contents for '" +
                     shown(tensor.name()) + "'");
    }
    Result<Bytes> data = Bytes();
    if (region.value()) {
      if (Status fits = kserve::check_input(model, input, region.value()->bytes); !fits.ok())
        return fits;
      data = regions.read(*region.value());
    } else if (!raw) {
      data = elements_of(tensor.contents(), *type, tensor.name());
    } else if (next_raw < request.raw_input_contents_size()) {
      data = http::bytes_of(std::move(*request.mutable_raw_input_contents(next_raw++)));
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

Result<std::vector<kserve::AskedOutput>> outputs_of(const inference::ModelInferRequest& request,
                                                    const kserve::Model& model) {
  std::vector<kserve::NamedOutput> named;
  for (const auto& output : request.outputs()) {
    Result<kserve::TensorParameters> parameters =
        read<kserve::TensorParameters>(output.parameters());
    if (!parameters.ok()) return parameters.status();
    parameters.value().binary_data.reset();  // answers are always raw here
    named.push_back({output.name(), std::move(parameters).value()});
  }
  return kserve::asked_outputs(named, true, model);
}

}  // namespace

Status check_limits(const inference::ModelInferRequest& request) {
  if (Status id = kserve::check_id(request.id()); !id.ok()) return id;
  const auto size = [](int count) { return static_cast<std::size_t>(count); };
  const int tensors =
      std::max({request.inputs_size(), request.outputs_size(), request.raw_input_contents_size()});
  if (Status few = check_count("tensors", size(tensors), kMostTensors); !few.ok()) return few;
  std::size_t parameters = request.parameters().size();
  int dimensions = 0;
  for (const auto& input : request.inputs()) {
    dimensions = std::max(dimensions, input.shape_size());
    parameters = std::max(parameters, std::size_t{input.parameters().size()});
  }
  for (const auto& output : request.outputs())
    parameters = std::max(parameters, std::size_t{output.parameters().size()});
  if (Status few = check_count("dimensions", size(dimensions), kMostDimensions); !few.ok())
    return few;
  return check_count("parameters", parameters, kMostParameters);
}

Result<kserve::InferCall> read_infer(inference::ModelInferRequest request,
                                     const kserve::Model& model,
                                     const kserve::SharedMemory& regions) {
  const auto parameters = read<kserve::RequestParameters>(request.parameters());
  if (!parameters.ok()) return parameters.status();
  Result<std::vector<kserve::AskedOutput>> outputs = outputs_of(request, model);
  if (!outputs.ok()) return outputs.status();
  Result<std::vector<kserve::GivenInput>> inputs = inputs_of(request, model, regions);
  if (!inputs.ok()) return inputs.status();
  Result<kserve::InferCall> call = kserve::call_of(
      model, std::move(inputs).value(), parameters.value().timeout, parameters.value().priority);
  if (!call.ok()) return call;
  call.value().id = request.id();
  call.value().outputs = std::move(outputs).value();
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
                          ? kserve::lengths_and_texts(output.labels)
                          : std::string(reinterpret_cast<const char*>(view.data()), view.size());
    if (region) {
      const std::size_t bytes = raw.size();
      if (Status written = regions.write(*region, http::bytes_of(std::move(raw))); !written.ok())
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
