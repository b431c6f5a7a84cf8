#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/core/bucket.h"
#include "gpulet/core/tensor.h"
#include "gpulet/net/kserve/http_api.h"
#include "net/kserve/image_body.h"
#include "net/kserve/json.h"
#include "net/kserve/tensor_values.h"

namespace gpulet::net::kserve {
namespace {

// ---- the JSON of a request

struct InputDocument {
  std::string name;
  std::string datatype;
  bool has_shape = false;
  bool has_data = false;
  std::vector<std::int64_t> shape{};
  std::vector<Number> data{};  // row-major, flattened
  std::string strings{};       // the same of BYTES, as elements
  std::size_t string_count = 0;
  TensorParameters parameters{};
};

struct InferDocument {
  std::string id;
  RequestParameters parameters;
  std::vector<InputDocument> inputs;
  std::vector<NamedOutput> outputs;  // empty: all
};

// Larger requests are refused while they are parsed.
struct DocumentLimits {
  std::string_view model;  // for messages
  std::size_t inputs = 0;
  std::size_t outputs = 0;
  std::size_t values = 0;       // per input
  std::uint32_t max_batch = 1;  // rows
  bool batched = true;          // the first dimension of a tensor is its rows
};

constexpr std::size_t kMostDimensions = 64;

// The position of the next event in the document.
enum class Place : std::uint8_t {
  outside,
  request,
  request_parameters,
  inputs,
  input,
  input_parameters,
  shape,
  data,
  outputs,
  output,
  output_parameters,
  ignored,
};

// The members with an array or object value.
struct Member {
  Place parent;
  std::string_view key;
  bool array;
  Place place;
};
constexpr std::array<Member, 7> kMembers{{
    {Place::request, "parameters", false, Place::request_parameters},
    {Place::request, "inputs", true, Place::inputs},
    {Place::request, "outputs", true, Place::outputs},
    {Place::input, "parameters", false, Place::input_parameters},
    {Place::input, "shape", true, Place::shape},
    {Place::input, "data", true, Place::data},
    {Place::output, "parameters", false, Place::output_parameters},
}};

const Member* find_member(Place parent, std::string_view key) {
  for (const Member& member : kMembers) {
    if (member.parent == parent && member.key == key) return &member;
  }
  return nullptr;
}

bool is_parameters(Place place) {
  return place == Place::request_parameters || place == Place::input_parameters ||
         place == Place::output_parameters;
}

bool is_text(Place parent, std::string_view key) {
  switch (parent) {
    case Place::request:
      return key == "id";
    case Place::input:
      return key == "name" || key == "datatype";
    case Place::output:
      return key == "name";
    default:
      return false;
  }
}

class InferReader : public JsonReader {
 public:
  explicit InferReader(const DocumentLimits& limits) : limits_(limits) { places_.reserve(8); }

  bool scalar(const Scalar& value) override {
    switch (place()) {
      case Place::data:
        return take_value(value);
      case Place::shape:
        return take_dimension(value);
      case Place::request_parameters:
        return accept(within(take_parameter(document_.parameters, key_, value)));
      case Place::input_parameters:
        return accept(within(take_parameter(input().parameters, key_, value)));
      case Place::output_parameters:
        return accept(within(take_parameter(output().parameters, key_, value)));
      case Place::outside:
        return refuse("the request's JSON must be an object; was " + shown(value));
      case Place::inputs:
      case Place::outputs:
        return refuse("every element of 'inputs' and 'outputs' must be an object; one was " +
                      shown(value));
      case Place::ignored:
        return true;
      case Place::request:
      case Place::input:
      case Place::output:
        break;
    }
    return take_member(value);
  }

  bool key(std::string_view name) override {
    key_.assign(name);
    return true;
  }

  bool open(bool array) override {
    switch (place()) {
      case Place::outside:
        if (array) return refuse("the request's JSON must be an object; was an array");
        return enter(Place::request);
      case Place::inputs:
        return !array ? begin_input() : refuse("every element of 'inputs' must be an object");
      case Place::outputs:
        return !array ? begin_output() : refuse("every element of 'outputs' must be an object");
      case Place::data:
        return array ? enter(Place::data) : refuse(where() + ": 'data' must hold no objects");
      case Place::shape:
        return refuse(where() + ": 'shape' must hold integers only");
      case Place::ignored:
        return enter(Place::ignored);
      default:
        return open_member(array);
    }
  }

  bool close() override {
    places_.pop_back();
    return true;
  }

  [[nodiscard]] InferDocument take() { return std::move(document_); }

 private:
  [[nodiscard]] Place place() const { return places_.empty() ? Place::outside : places_.back(); }
  bool enter(Place place) {
    places_.push_back(place);
    return true;
  }
  InputDocument& input() { return document_.inputs.back(); }
  NamedOutput& output() { return document_.outputs.back(); }

  // Names the current input or output in errors.
  [[nodiscard]] std::string where() const {
    const auto named = [](std::string_view kind, const std::string& name, std::size_t count) {
      return fmt::format("{} {}", kind, name.empty() ? std::to_string(count - 1) : in_quotes(name));
    };
    for (const Place place : places_) {
      if (place == Place::input)
        return named("input", document_.inputs.back().name, document_.inputs.size());
      if (place == Place::output)
        return named("output", document_.outputs.back().name, document_.outputs.size());
    }
    return "the request";
  }
  [[nodiscard]] Status within(const Status& status) const {
    return status.ok() ? status : status.within(where());
  }

  bool begin_input() {
    // One more, so that an unknown or repeated input is refused by its name.
    if (document_.inputs.size() > limits_.inputs) {
      return refuse(fmt::format("expected {} inputs but got more for model {}", limits_.inputs,
                                in_quotes(limits_.model)));
    }
    document_.inputs.emplace_back();
    return enter(Place::input);
  }
  bool begin_output() {
    if (document_.outputs.size() == limits_.outputs) {
      return refuse(fmt::format("more outputs are requested than the {} of model {}",
                                limits_.outputs, in_quotes(limits_.model)));
    }
    document_.outputs.emplace_back();
    return enter(Place::output);
  }

  // Opens the object or array of a key.
  bool open_member(bool array) {
    const Place parent = place();
    if (is_parameters(parent)) return open_parameter(parent);
    if (is_text(parent, key_))
      return refuse(fmt::format("{}: {} must be a string", where(), in_quotes(key_)));
    const Member* const member = find_member(parent, key_);
    if (member == nullptr) return enter(Place::ignored);
    if (member->array != array) return wrong_member(*member);
    if (member->place == Place::shape) input().has_shape = true;
    if (member->place == Place::data) input().has_data = true;
    return enter(member->place);
  }
  // Some clients send objects or lists of their own. A parameter that is used refuses null, too.
  bool open_parameter(Place parent) {
    RequestParameters of_request;
    TensorParameters of_tensor;
    const Status unused = parent == Place::request_parameters
                              ? take_parameter(of_request, key_, Scalar())
                              : take_parameter(of_tensor, key_, Scalar());
    if (unused.ok()) return enter(Place::ignored);
    return refuse(
        fmt::format("{}: parameter {} must be a string, a number, true or false; was an "
                    "object or a list",
                    where(), in_quotes(key_)));
  }
  bool wrong_member(const Member& member) {
    return refuse(fmt::format("{}: {} must be {}", where(), in_quotes(member.key),
                              member.array ? "an array" : "an object"));
  }

  // Takes a scalar member of the request, an input or an output.
  bool take_member(const Scalar& value) {
    const Place parent = place();
    if (const Member* const member = find_member(parent, key_)) {
      // Some clients write unused members as null.
      return std::holds_alternative<std::monostate>(value) || wrong_member(*member);
    }
    if (!is_text(parent, key_)) return true;
    const auto* const text = std::get_if<std::string_view>(&value);
    if (text == nullptr) {
      if (parent == Place::request && std::holds_alternative<std::monostate>(value)) return true;
      return refuse(
          fmt::format("{}: {} must be a string; was {}", where(), in_quotes(key_), shown(value)));
    }
    if (parent == Place::request) {
      if (!accept(check_id(*text))) return false;
      document_.id = *text;
    } else if (parent == Place::output) {
      output().name = *text;
    } else {
      (key_ == "name" ? input().name : input().datatype) = *text;
    }
    return true;
  }

  bool take_dimension(const Scalar& value) {
    std::vector<std::int64_t>& shape = input().shape;
    if (shape.size() == kMostDimensions)
      return refuse(fmt::format("{}: more than {} dimensions", where(), kMostDimensions));
    const auto* const natural = std::get_if<std::uint64_t>(&value);
    if (natural == nullptr ||
        *natural > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return refuse(
          fmt::format("{}: every dimension of 'shape' must be an integer of at least 1; was {}",
                      where(), shown(value)));
    }
    shape.push_back(static_cast<std::int64_t>(*natural));
    return true;
  }

  bool take_value(const Scalar& value) {
    std::vector<Number>& data = input().data;
    if (const auto* text = std::get_if<std::string_view>(&value)) return take_string(*text);
    if (input().string_count > 0)
      return refuse(where() + ": 'data' must hold strings or numbers, not both");
    if (data.size() == limits_.values) return too_many("values");
    if (const auto* natural = std::get_if<std::uint64_t>(&value)) {
      data.emplace_back(*natural);
    } else if (const auto* real = std::get_if<double>(&value)) {
      data.emplace_back(*real);
    } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      data.emplace_back(*integer);
    } else if (const auto* boolean = std::get_if<bool>(&value)) {
      data.emplace_back(*boolean);
    } else {
      return refuse(where() + ": 'data' must hold numbers, true, false or strings; holds " +
                    shown(value));
    }
    return true;
  }

  bool too_many(std::string_view elements) {
    const InputDocument& one = input();
    if (limits_.batched && !one.shape.empty() &&
        one.shape.front() > static_cast<std::int64_t>(limits_.max_batch))
      return refuse(wrong_rows(one.name, limits_.model, limits_.max_batch, one.shape.front()));
    return refuse(fmt::format(
        "{}: 'data' has more than the {} {} that model {} accepts in one request of {} rows, its "
        "max_batch; send as many as 'shape' says, or fewer rows",
        where(), limits_.values, elements, in_quotes(limits_.model), limits_.max_batch));
  }

  bool take_string(std::string_view text) {
    if (!input().data.empty())
      return refuse(where() + ": 'data' must hold strings or numbers, not both");
    if (input().string_count == limits_.values) return too_many("strings");
    ++input().string_count;
    append_element(input().strings, text);
    return true;
  }

  const DocumentLimits& limits_;
  InferDocument document_;
  std::vector<Place> places_;
  std::string key_;
};

Result<InferDocument> read_document(std::string_view text, const DocumentLimits& limits) {
  InferReader reader(limits);
  const Status read = read_json(text, reader);
  if (read.ok()) return reader.take();
  // Only invalid JSON is searched for non-finite literals, so that usual requests are parsed once.
  if (!reader.refusal().ok() || !has_non_finite(text)) return read;
  InferReader again(limits);
  if (Status read_again = read_json_with_non_finite(text, again); !read_again.ok())
    return read_again;
  return again.take();
}

// ---- requests

constexpr std::string_view kJsonLength = "Inference-Header-Content-Length";

// The length of the JSON part of the body; empty without the header: the whole body.
Result<std::optional<std::size_t>> json_length(const http::Headers& headers, std::size_t body) {
  const std::string_view text = http::find_header(headers, kJsonLength);
  if (text.empty()) return std::optional<std::size_t>();
  const std::optional<std::size_t> length = parse_number<std::size_t>(text);
  if (!length || *length > body) {
    return invalid(
        fmt::format("header {} must be an integer from 0 to the {} bytes of the body; was {}",
                    kJsonLength, body, in_quotes(text)));
  }
  return length;
}

DocumentLimits limits_of(const Model& model) {
  DocumentLimits limits{.model = model.name,
                        .inputs = model.inputs.size(),
                        .outputs = model.outputs.size(),
                        .max_batch = model.max_batch,
                        .batched = !are_whole(model.inputs)};
  for (const TensorSpec& spec : longest_inputs(model)) {
    const Result<std::size_t> bytes = byte_size(spec);
    if (!bytes.ok()) continue;  // call_of fails
    limits.values = std::max(limits.values, bytes.value() / byte_size(spec.type) * model.max_batch);
  }
  return limits;
}

// The binary tensors behind the JSON, consumed in order.
class Blobs {
 public:
  explicit Blobs(Bytes bytes) : bytes_(std::move(bytes)) {}

  Result<Bytes> take(const std::string& input, std::uint64_t length) {
    const std::size_t left = bytes_.size() - taken_;
    if (length > left) {
      return invalid(
          fmt::format("input {}: 'binary_data_size' is {}, but only {} bytes of binary data are "
                      "left in the body",
                      in_quotes(input), length, left));
    }
    Bytes blob = bytes_.slice(taken_, length);
    taken_ += length;
    return blob;
  }

  [[nodiscard]] Status all_taken() const {
    if (taken_ == bytes_.size()) return {};
    return invalid(fmt::format("the body has {} bytes of binary data beyond those of its inputs",
                               bytes_.size() - taken_));
  }

 private:
  Bytes bytes_;
  std::size_t taken_ = 0;
};

Result<Bytes> strings_of(InputDocument& document, const GivenInput& input) {
  if (input.type == DataType::bytes) return http::bytes_of(std::move(document.strings));
  return invalid(fmt::format("input {}: 'data' of {} must hold numbers; holds strings",
                             in_quotes(input.name), to_string(input.type)));
}

// The bytes of an input, which must have exactly one source.
Result<Bytes> data_of(InputDocument& document, const GivenInput& input, const Model& model,
                      const SharedMemory& regions, Blobs& blobs) {
  const Result<std::optional<RegionSlice>> region = region_of(document.parameters);
  if (!region.ok()) return region.status().within("input " + in_quotes(input.name));
  const auto& binary = document.parameters.binary_data_size;
  const int places = (region.value() ? 1 : 0) + (binary ? 1 : 0) + (document.has_data ? 1 : 0);
  if (places != 1) {
    return invalid(fmt::format(
        "input {} must have one of 'data', 'binary_data_size' and 'shared_memory_region'; has {}",
        in_quotes(input.name), places));
  }
  if (binary) return blobs.take(input.name, *binary);
  if (document.string_count > 0) return strings_of(document, input);
  if (document.has_data) return bytes_of_numbers(input.name, input.type, document.data);
  if (Status fits = check_input(model, input, region.value()->bytes); !fits.ok()) return fits;
  return regions.read(*region.value());
}

Result<GivenInput> input_of(InputDocument& document, const Model& model,
                            const SharedMemory& regions, Blobs& blobs) {
  GivenInput input;
  input.name = std::move(document.name);
  if (input.name.empty()) return invalid("every input must have a 'name'");
  if (document.datatype.empty() || !document.has_shape) {
    return invalid(fmt::format("input {} must have a '{}'", in_quotes(input.name),
                               document.datatype.empty() ? "datatype" : "shape"));
  }
  const std::optional<DataType> type = parse_data_type(document.datatype);
  if (!type) {
    return invalid(fmt::format("input {}: unsupported datatype {}", in_quotes(input.name),
                               in_quotes(document.datatype)));
  }
  input.type = *type;
  input.shape = std::move(document.shape);
  GPULET_TRY(Bytes data, data_of(document, input, model, regions, blobs));
  input.data = std::move(data);
  return input;
}

// A raw body: one row of the only input; of BYTES: its only string, without its length.
Result<InferCall> read_raw(const Bytes& body, const Model& model) {
  if (model.inputs.size() != 1) {
    return invalid(
        fmt::format("a raw body ({}: 0) requires a model with one input; model {} has {}",
                    kJsonLength, in_quotes(model.name), model.inputs.size()));
  }
  if (is_dynamic(model.inputs)) {
    return invalid(fmt::format(
        "a raw body ({}: 0) has no shape, which model {} needs: its input has a dimension of -1",
        kJsonLength, in_quotes(model.name)));
  }
  GivenInput input;
  input.name = model.inputs[0].name;
  input.type = model.inputs[0].type;
  input.shape = batch_shape(model.inputs[0], 1);
  input.data = body;
  if (input.type == DataType::bytes) {
    if (element_count(model.inputs[0]) != 1) {
      return invalid(fmt::format("a raw body ({}: 0) is one string; input {} of model {} has {}",
                                 kJsonLength, in_quotes(input.name), in_quotes(model.name),
                                 element_count(model.inputs[0])));
    }
    std::string element;
    append_element(element, text_of(body.view()));
    input.data = http::bytes_of(std::move(element));
  }
  Result<InferCall> call = call_of(model, {std::move(input)}, Duration::zero());
  if (!call.ok()) return call;
  GPULET_TRY(std::vector<RequestedOutput> outputs, requested_outputs({}, true, model));
  call.value().outputs = std::move(outputs);
  return call;
}

constexpr std::size_t kLargestInference = std::size_t{1} << 40U;

// `bytes_of`: the longest form of an input with that many rows and elements.
template <typename BytesOf>
std::size_t largest_inference(std::span<const TensorSpec> inputs, std::uint32_t max_rows,
                              BytesOf bytes_of) {
  constexpr std::size_t kRest = 64U << 10U;  // names, shapes, parameters
  const std::size_t rows = std::max<std::size_t>(max_rows, 1);
  std::size_t bytes = kRest;
  for (const TensorSpec& spec : inputs) {
    const Result<std::size_t> row = byte_size(spec);
    if (!row.ok() || row.value() > kLargestInference / rows) return kLargestInference;
    const std::size_t elements = row.value() / byte_size(spec.type) * rows;
    bytes += std::min(bytes_of(spec, rows, elements), kLargestInference);
  }
  return std::min(bytes, kLargestInference);
}

// As pretty printers write it: every element and every bracket is on a line of its own, at most
// kIndent further in at each level.
constexpr std::size_t kIndent = 8;
constexpr std::size_t kOuterLevels = 4;  // the request, its inputs, one input, its data
constexpr std::size_t kLineEnd = 3;      // ",\r\n"
constexpr std::size_t kLongestNumber = 32;
constexpr std::size_t kLongestCharacter = 6;  // of a string: "\u0000"

constexpr std::size_t longest_line(std::size_t level, std::size_t text) {
  return (kOuterLevels + level) * kIndent + text + kLineEnd;
}

std::size_t longest_json(const TensorSpec& spec, std::size_t rows, std::size_t elements) {
  constexpr std::size_t kQuotes = 2;
  std::size_t bytes = 0;
  std::size_t arrays = rows;
  for (std::size_t level = 0; level < spec.shape.size(); ++level) {
    bytes += 2 * arrays * longest_line(level, 1);
    arrays *= static_cast<std::size_t>(spec.shape[level]);
  }
  if (spec.type == DataType::bytes) {
    return bytes + arrays * longest_line(spec.shape.size(), kQuotes) +
           rows * spec.max_bytes * kLongestCharacter;
  }
  return bytes + elements * longest_line(spec.shape.size(), kLongestNumber);
}

}  // namespace

std::size_t largest_infer_body(const Model& model) {
  return largest_inference(longest_inputs(model), model.max_batch, longest_json);
}

std::string largest_infer_rows(const Model& model) {
  return fmt::format(
      "one request of model {} has up to {} rows, its max_batch; send fewer rows, or binary data",
      in_quotes(model.name), model.max_batch);
}

std::size_t largest_infer_message(std::span<const TensorSpec> inputs, std::uint32_t rows) {
  static constexpr std::size_t kLongestInteger = 10;  // a negative varint
  return largest_inference(inputs, rows,
                           [](const TensorSpec& spec, std::size_t /*rows*/, std::size_t elements) {
                             return elements * std::max(byte_size(spec.type), kLongestInteger);
                           });
}

Result<InferCall> read_infer(const http::Headers& headers, const Bytes& body, const Model& model,
                             const SharedMemory& regions) {
  GPULET_TRY(const std::optional<std::size_t> length, json_length(headers, body.size()));
  if (!length && has_image_body(headers)) return read_images(headers, body, model);
  if (length == 0U) return read_raw(body, model);
  const std::size_t json_bytes = length.value_or(body.size());
  GPULET_TRY(InferDocument document,
             read_document(text_of(body.view().first(json_bytes)), limits_of(model)));
  GPULET_TRY(std::vector<RequestedOutput> outputs,
             requested_outputs(document.outputs, document.parameters.binary_data_output, model));
  Blobs blobs(body.slice(json_bytes, body.size() - json_bytes));
  std::vector<GivenInput> inputs;
  inputs.reserve(document.inputs.size());
  for (InputDocument& one : document.inputs) {
    GPULET_TRY(GivenInput input, input_of(one, model, regions, blobs));
    inputs.push_back(std::move(input));
  }
  if (Status taken = blobs.all_taken(); !taken.ok()) return taken;
  Result<InferCall> call =
      call_of(model, std::move(inputs), document.parameters.timeout, document.parameters.priority);
  if (!call.ok()) return call;
  call.value().id = std::move(document.id);
  call.value().outputs = std::move(outputs);
  return call;
}

// ---- responses

namespace {

class ResponseWriter {
 public:
  explicit ResponseWriter(SharedMemory& regions) : regions_(regions) {}

  void begin(const InferCall& call, const Model& model) {
    json_.begin('{').key("model_name").text(model.name);
    json_.key("model_version").text(model.version);
    if (!call.id.empty()) json_.key("id").text(call.id);
    json_.key("outputs").begin('[');
  }

  [[nodiscard]] Status add(const RequestedOutput& requested, const ResponseOutput& output) {
    const bool labelled = !output.labels.empty();
    json_.begin('{').key("name").text(output.spec.name);
    json_.key("datatype").text(labelled ? "BYTES" : to_string(output.spec.type));
    json_.key("shape").begin('[');
    for (const std::int64_t size : output.spec.shape) json_.value() += std::to_string(size);
    json_.end(']');
    Status added;
    if (requested.region || requested.binary) {
      added = add_raw(requested,
                      labelled ? http::bytes_of(lengths_and_texts(output.labels)) : output.data);
    } else if (labelled) {
      json_.key("data").begin('[');
      for (const std::string& label : output.labels) json_.text(label);
      json_.end(']');
    } else {
      added = append_values(json_.key("data").value(), output.spec, output.data.view());
    }
    json_.end('}');
    return added;
  }

  [[nodiscard]] http::HttpResponse take() {
    std::string json = std::move(json_.end(']').end('}')).take();
    http::HttpResponse response;
    if (binary_) {
      response.headers.reserve(2);
      response.headers.push_back({"Content-Type", "application/octet-stream"});
      response.headers.push_back({"Inference-Header-Content-Length", std::to_string(json.size())});
    } else {
      response.headers = {{"Content-Type", "application/json"}};
    }
    response.body.reserve(1 + blobs_.size());
    response.body.push_back(http::bytes_of(std::move(json)));
    for (Bytes& blob : blobs_) response.body.push_back(std::move(blob));
    return response;
  }

 private:
  // Clients expect `binary_data_size` in any `parameters`; shared memory has none, as with Triton.
  Status add_raw(const RequestedOutput& requested, Bytes raw) {
    if (requested.region) return regions_.write(*requested.region, raw);
    binary_ = true;
    json_.key("parameters").begin('{').key("binary_data_size");
    json_.value() += std::to_string(raw.size());
    json_.end('}');
    blobs_.push_back(std::move(raw));
    return {};
  }

  static constexpr std::size_t kUsualHead = 512;

  SharedMemory& regions_;
  JsonWriter json_{kUsualHead};
  std::vector<Bytes> blobs_;
  bool binary_ = false;
};

}  // namespace

http::HttpResponse write_infer(const InferCall& call, const Model& model,
                               std::span<const InferReply> replies, SharedMemory& regions) {
  const Result<std::vector<ResponseOutput>> outputs = gather(call, model, replies);
  if (!outputs.ok()) return error(outputs.status());
  ResponseWriter writer(regions);
  writer.begin(call, model);
  for (std::size_t i = 0; i < outputs.value().size(); ++i) {
    if (Status added = writer.add(call.outputs[i], outputs.value()[i]); !added.ok())
      return error(added);
  }
  return writer.take();
}

}  // namespace gpulet::net::kserve
