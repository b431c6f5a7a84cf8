#include "gpulet/net/kserve/infer_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "gpulet/core/bucket.h"
#include "gpulet/core/queue_rules.h"
#include "net/kserve/json.h"
#include "net/kserve/tensor_values.h"

namespace gpulet::net::kserve {
// ---- parameters

namespace {

constexpr std::chrono::microseconds kLongestTimeout = std::chrono::hours(24);

Status wrong_parameter(std::string_view name, std::string_view expected, const Scalar& value) {
  return invalid(
      fmt::format("parameter {} must be {}; was {}", in_quotes(name), expected, shown(value)));
}

Result<std::uint64_t> natural(std::string_view name, const Scalar& value) {
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return *number;
  return wrong_parameter(name, "an integer of at least 0", value);
}

Status take_natural(std::optional<std::uint64_t>& into, std::string_view name,
                    const Scalar& value) {
  const Result<std::uint64_t> number = natural(name, value);
  if (number.ok()) into = number.value();
  return number.status();
}

// `into`: a bool, or an optional one.
Status take_flag(auto& into, std::string_view name, const Scalar& value) {
  const auto* flag = std::get_if<bool>(&value);
  if (flag == nullptr) return wrong_parameter(name, "true or false", value);
  into = *flag;
  return {};
}

// Values that clients send for requests outside a sequence.
bool is_no_sequence(const Scalar& value) {
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return *number == 0;
  if (const auto* text = std::get_if<std::string_view>(&value)) return text->empty();
  const auto* flag = std::get_if<bool>(&value);
  return flag != nullptr && !*flag;
}

}  // namespace

Status take_parameter(RequestParameters& parameters, std::string_view name, const Scalar& value) {
  if (name == "timeout") {
    const Result<std::uint64_t> timeout = natural(name, value);
    if (timeout.ok()) {
      constexpr auto kMost = static_cast<std::uint64_t>(kLongestTimeout.count());
      parameters.timeout = std::chrono::microseconds(std::min(timeout.value(), kMost));
    }
    return timeout.status();
  }
  if (name == "priority") {
    const Result<std::uint64_t> priority = natural(name, value);
    if (priority.ok()) {
      const bool possible = priority.value() <= kMostPriorityLevels;
      parameters.priority = possible ? static_cast<std::uint32_t>(priority.value()) : 0;
    }
    return priority.status();
  }
  if (name == "binary_data_output") return take_flag(parameters.binary_data_output, name, value);
  if (name == "sequence_id" || name == "sequence_start" || name == "sequence_end") {
    if (is_no_sequence(value)) return {};
    return invalid(fmt::format(
        "parameter {} is not supported: this server has no sequence batching", in_quotes(name)));
  }
  return {};
}

Status take_parameter(TensorParameters& parameters, std::string_view name, const Scalar& value) {
  if (name == "binary_data_size") return take_natural(parameters.binary_data_size, name, value);
  if (name == "shared_memory_offset") return take_natural(parameters.region_offset, name, value);
  if (name == "shared_memory_byte_size") return take_natural(parameters.region_bytes, name, value);
  if (name == "shared_memory_region") {
    const auto* region = std::get_if<std::string_view>(&value);
    if (region == nullptr) return wrong_parameter(name, "a region's name", value);
    parameters.region = std::string(*region);
    return {};
  }
  if (name == "binary_data") return take_flag(parameters.binary_data, name, value);
  if (name == "classification") {
    const Result<std::uint64_t> classes = natural(name, value);
    if (classes.ok()) {
      parameters.classification = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(classes.value(), std::numeric_limits<std::uint32_t>::max()));
    }
    return classes.status();
  }
  return {};
}

Result<std::optional<RegionSlice>> region_of(const TensorParameters& parameters) {
  if (!parameters.region && !parameters.region_offset && !parameters.region_bytes)
    return std::optional<RegionSlice>();
  if (!parameters.region || !parameters.region_bytes) {
    return invalid(
        "a tensor in shared memory needs 'shared_memory_region' and 'shared_memory_byte_size'");
  }
  return std::optional(RegionSlice{.region = *parameters.region,
                                   .offset = parameters.region_offset.value_or(0),
                                   .bytes = *parameters.region_bytes});
}

// ---- requested outputs

namespace {

Result<RequestedOutput> output_of(const NamedOutput& named, bool binary, const Model& model) {
  const auto found = std::find_if(model.outputs.begin(), model.outputs.end(),
                                  [&](const TensorSpec& spec) { return spec.name == named.name; });
  if (found == model.outputs.end()) {
    return invalid(fmt::format("unexpected inference output {} for model {}", in_quotes(named.name),
                               in_quotes(model.name)));
  }
  Result<std::optional<RegionSlice>> region = region_of(named.parameters);
  if (!region.ok()) return region.status().within("output " + in_quotes(named.name));
  return RequestedOutput{.index = static_cast<std::size_t>(found - model.outputs.begin()),
                         .binary = named.parameters.binary_data.value_or(binary),
                         .classification = named.parameters.classification,
                         .region = std::move(region).value()};
}

}  // namespace

Result<std::vector<RequestedOutput>> requested_outputs(std::span<const NamedOutput> named,
                                                       bool binary, const Model& model) {
  std::vector<RequestedOutput> outputs;
  outputs.reserve(model.outputs.size());
  for (const NamedOutput& output_name : named) {
    GPULET_TRY(RequestedOutput output, output_of(output_name, binary, model));
    const std::size_t index = output.index;
    const bool again =
        std::any_of(outputs.begin(), outputs.end(),
                    [index](const RequestedOutput& one) { return one.index == index; });
    if (again) return invalid("output " + in_quotes(output_name.name) + " is requested twice");
    outputs.push_back(std::move(output));
  }
  if (named.empty()) {
    for (std::size_t i = 0; i < model.outputs.size(); ++i)
      outputs.push_back({.index = i, .binary = binary});
  }
  // Before the inference, so that nothing is computed in vain.
  for (const RequestedOutput& output : outputs) {
    const TensorSpec& spec = model.outputs[output.index];
    const bool as_json = !output.binary && !output.region && output.classification == 0;
    if (as_json && !has_json_form(spec.type)) return no_json_form(spec);
    if (output.classification > 0 && spec.type == DataType::bytes) {
      return invalid(
          fmt::format("output {}: 'classification' needs numbers, and it holds strings; leave the "
                      "parameter out",
                      in_quotes(spec.name)));
    }
  }
  return outputs;
}

// ---- inputs

namespace {

// As clients send it.
std::string expected_shape(const TensorSpec& spec) {
  return shown(batch_shape(spec, -1)) +
         (spec.whole ? " without a batch dimension" : " with the batch in front");
}

const TensorSpec* find_input(const Model& model, std::string_view name) {
  for (const TensorSpec& spec : model.inputs) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

// The tensor of one row. REQUIRES: as many dimensions as declared, and that of the batch unless it
// is whole.
TensorSpec row_of(const TensorSpec& declared, const GivenInput& input) {
  TensorSpec row = declared;
  row.shape.assign(input.shape.begin() + (declared.whole ? 0 : 1), input.shape.end());
  return row;
}

// REQUIRES: as row_of().
std::int64_t rows_in(const TensorSpec& declared, const GivenInput& input) {
  return declared.whole ? 1 : input.shape[0];
}

Status check_shape(const Model& model, const TensorSpec& spec, const GivenInput& input) {
  const std::size_t batch = spec.whole ? 0 : 1;  // dimensions
  const bool same_rank = input.shape.size() == spec.shape.size() + batch;
  const auto fits = [&model](std::int64_t expected, std::int64_t given) {
    return expected == given || (expected == kAnyLength && given >= 1 && given <= model.longest);
  };
  if (!same_rank || !std::equal(spec.shape.begin(), spec.shape.end(),
                                input.shape.begin() + static_cast<std::ptrdiff_t>(batch), fits)) {
    const std::string why =
        !same_rank ? std::string()
        : is_dynamic(spec)
            ? fmt::format("; a dimension of -1 takes sizes from 1 to {}", model.longest)
            : std::string("; shapes are fixed: pad or crop the input");
    return invalid(fmt::format("unexpected shape for input {} for model {}; expected {}, got {}{}",
                               in_quotes(input.name), in_quotes(model.name), expected_shape(spec),
                               shown(input.shape), why));
  }
  if (spec.whole) return {};
  if (input.shape[0] < 1 || input.shape[0] > static_cast<std::int64_t>(model.max_batch))
    return wrong_rows(input.name, model.name, model.max_batch, input.shape[0]);
  return {};
}

// Sets every nonzero byte to 1: the executor requires valid bools.
void normalise_booleans(Bytes& booleans) {
  const auto given = booleans.view();
  const auto is_neither = [](std::byte value) { return value > std::byte{1}; };
  if (std::none_of(given.begin(), given.end(), is_neither)) return;
  std::vector<std::byte> normal(given.begin(), given.end());
  for (std::byte& value : normal) value = std::min(value, std::byte{1});
  booleans = Bytes::own(std::move(normal));
}

using InOrder = std::vector<const GivenInput*>;  // in the order of the model's inputs

// Checks that each input of the model occurs once, fits, and has the same number of rows.
Result<InOrder> in_order(const Model& model, std::vector<GivenInput>& inputs) {
  InOrder order(model.inputs.size(), nullptr);
  for (GivenInput& input : inputs) {
    if (Status fits = check_input(model, input, input.data.size()); !fits.ok()) return fits;
    const auto at = static_cast<std::size_t>(find_input(model, input.name) - model.inputs.data());
    if (order[at] != nullptr) {
      return invalid(fmt::format("input {} is given twice for model {}", in_quotes(input.name),
                                 in_quotes(model.name)));
    }
    if (input.type == DataType::boolean) normalise_booleans(input.data);
    order[at] = &input;
  }
  if (const auto missing = std::find(order.begin(), order.end(), nullptr) - order.begin();
      static_cast<std::size_t>(missing) < order.size()) {
    return invalid(fmt::format("expected {} inputs but got {} inputs for model {}; missing is {}",
                               model.inputs.size(), inputs.size(), in_quotes(model.name),
                               in_quotes(model.inputs[static_cast<std::size_t>(missing)].name)));
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int64_t rows = rows_in(model.inputs[i], *order[i]);
    const std::int64_t others = rows_in(model.inputs[0], *order[0]);
    if (rows != others) {
      return invalid(
          fmt::format("input {} batch size does not match other inputs for model {}: {} and {}",
                      in_quotes(order[i]->name), in_quotes(model.name), rows, others));
    }
  }
  return order;
}

// What takes the place of an input that a request leaves out; null: it must be there.
const std::vector<std::byte>* default_of(const Model& model, std::size_t input) {
  if (!model.description || input >= model.description->defaults.size()) return nullptr;
  const std::vector<std::byte>& bytes = model.description->defaults[input];
  return bytes.empty() ? nullptr : &bytes;
}

// Adds the inputs that the request leaves out and that have a default, for as many rows as the
// others have.
void add_defaults(const Model& model, std::vector<GivenInput>& inputs) {
  std::size_t rows = 1;
  for (const GivenInput& input : inputs) {
    const TensorSpec* const spec = find_input(model, input.name);
    if (spec == nullptr || spec->whole || input.shape.empty()) continue;
    // More are refused later.
    rows = static_cast<std::size_t>(
        std::clamp<std::int64_t>(input.shape[0], 1, static_cast<std::int64_t>(model.max_batch)));
  }
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    const std::vector<std::byte>* const one = default_of(model, i);
    const TensorSpec& spec = model.inputs[i];
    const bool given = std::any_of(inputs.begin(), inputs.end(), [&spec](const GivenInput& input) {
      return input.name == spec.name;
    });
    if (one == nullptr || given) continue;
    std::vector<std::byte> bytes;
    bytes.reserve(one->size() * rows);
    for (std::size_t row = 0; row < rows; ++row)
      bytes.insert(bytes.end(), one->begin(), one->end());
    inputs.push_back({spec.name, spec.type, batch_shape(spec, static_cast<std::int64_t>(rows)),
                      Bytes::own(std::move(bytes))});
  }
}

// The lengths of an input's rows, in their order.
using RowLengths = std::vector<std::size_t>;

Result<RowLengths> row_lengths(const TensorSpec& spec, const GivenInput& input, std::size_t rows) {
  RowLengths lengths(rows, input.data.size() / rows);
  if (spec.type != DataType::bytes) return lengths;
  const std::size_t elements = element_count(spec);
  std::span<const std::byte> rest = input.data.view();
  for (std::size_t& length : lengths) {
    const std::optional<std::size_t> end = elements_end(rest, elements);
    if (!end) {
      return invalid(
          fmt::format("input {}: its data are not {} elements for each of {} rows; the bytes of "
                      "an element follow its length of 32 bits, little-endian",
                      in_quotes(spec.name), elements, rows));
    }
    if (*end > spec.max_bytes) {
      return invalid(fmt::format(
          "input {}: a row has {} bytes with the lengths of its elements; max_bytes of the model's "
          "entry allows {}",
          in_quotes(spec.name), *end, spec.max_bytes));
    }
    length = *end;
    rest = rest.subspan(*end);
  }
  if (rest.empty()) return lengths;
  return invalid(
      fmt::format("input {}: {} bytes follow its last element", in_quotes(spec.name), rest.size()));
}

struct Rows {
  Bytes bytes;  // for each row, its part of every input
  RowLengths lengths;
};

Result<Rows> rows_of(const Model& model, const InOrder& order, std::size_t rows) {
  std::vector<RowLengths> lengths;
  std::size_t total = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    GPULET_TRY(RowLengths of_input, row_lengths(model.inputs[i], *order[i], rows));
    lengths.push_back(std::move(of_input));
    total += order[i]->data.size();
  }
  if (order.size() == 1) return Rows{order[0]->data, std::move(lengths[0])};
  Rows joined{{}, RowLengths(rows)};
  std::vector<std::byte> bytes;
  bytes.reserve(total);
  std::vector<std::size_t> begins(order.size(), 0);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto part = order[i]->data.view().subspan(begins[i], lengths[i][row]);
      bytes.insert(bytes.end(), part.begin(), part.end());
      begins[i] += part.size();
      joined.lengths[row] += part.size();
    }
  }
  joined.bytes = Bytes::own(std::move(bytes));
  return joined;
}

}  // namespace

Status wrong_rows(std::string_view input, std::string_view model, std::uint32_t max_batch,
                  std::int64_t rows) {
  return invalid(fmt::format(
      "input {}: inference request batch-size must be 1 to {} for model {}; was {}; send fewer "
      "rows, or raise max_batch of the model's entry",
      in_quotes(input), max_batch, in_quotes(model), rows));
}

Status check_id(std::string_view id) {
  if (id.size() <= kMaxIdBytes) return {};
  return invalid(
      fmt::format("the request's id must be at most {} bytes; has {}", kMaxIdBytes, id.size()));
}

Status check_input(const Model& model, const GivenInput& input, std::uint64_t bytes) {
  const TensorSpec* const spec = find_input(model, input.name);
  if (spec == nullptr) {
    std::string allowed;
    for (const TensorSpec& one : model.inputs)
      allowed += (allowed.empty() ? "" : ", ") + in_quotes(one.name);
    return invalid(fmt::format("unexpected inference input {} for model {}; it takes {}",
                               in_quotes(input.name), in_quotes(model.name), allowed));
  }
  if (input.type != spec->type) {
    return invalid(fmt::format("inference input {} data-type is '{}', model {} expects '{}'",
                               in_quotes(input.name), to_string(input.type), in_quotes(model.name),
                               to_string(spec->type)));
  }
  if (Status shape = check_shape(model, *spec, input); !shape.ok()) return shape;
  GPULET_TRY(const std::size_t row_bytes, byte_size(row_of(*spec, input)));
  std::uint64_t expected = 0;
  const auto rows = static_cast<std::uint64_t>(rows_in(*spec, input));
  if (__builtin_mul_overflow(row_bytes, rows, &expected)) {
    return invalid("input " + in_quotes(input.name) + ": its size exceeds 64 bits");
  }
  if (spec->type == DataType::bytes) {
    if (bytes <= expected) return {};
    return invalid(fmt::format(
        "input {} has {} bytes; max_bytes of the entry of model {} allows {} for each of {} rows",
        in_quotes(input.name), bytes, in_quotes(model.name), spec->max_bytes, rows));
  }
  if (bytes != expected) {
    return invalid(
        fmt::format("input byte size mismatch for input {} for model {}; expected {}, got {}",
                    in_quotes(input.name), in_quotes(model.name), expected, bytes));
  }
  return {};
}

Result<InferCall> call_of(const Model& model, std::vector<GivenInput> inputs, Duration timeout,
                          std::uint32_t priority) {
  add_defaults(model, inputs);
  GPULET_TRY(const InOrder order, in_order(model, inputs));
  if (inputs.empty()) return invalid("model " + in_quotes(model.name) + " takes no inputs");
  const auto rows = static_cast<std::size_t>(rows_in(model.inputs[0], *order[0]));
  GPULET_TRY(const Rows all, rows_of(model, order, rows));
  std::vector<TensorSpec> row_specs = model.inputs;
  for (std::size_t i = 0; i < row_specs.size(); ++i)
    row_specs[i] = row_of(model.inputs[i], *order[i]);
  InferCall call;
  call.model = model.name;
  call.rows = static_cast<std::uint32_t>(rows);
  call.requests.reserve(rows);
  std::size_t begin = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t length = all.lengths[row];
    call.requests.push_back(InferRequest{.tag = row,
                                         .model = model.name,
                                         .timeout = timeout,
                                         .inputs = row_specs,
                                         .payload = all.bytes.slice(begin, length),
                                         .priority = priority});
    begin += length;
  }
  return call;
}

// ---- responses

namespace {

using Replies = std::span<const InferReply>;

Status wrong_reply(const Model& model, const std::string& reply) {
  return {StatusCode::internal, fmt::format("model {} replied {}", in_quotes(model.name), reply)};
}

Status check_elements(const Model& model, const InferReply& reply, std::size_t output) {
  const TensorSpec& spec = reply.outputs[output];
  const Bytes& bytes = reply.payload[output];
  if (spec.type != DataType::bytes ||
      elements_end(bytes.view(), element_count(spec)) == bytes.size())
    return {};
  return wrong_reply(model, fmt::format("{} bytes for output {} that are not its elements",
                                        bytes.size(), in_quotes(model.outputs[output].name)));
}

Status check_reply(const InferCall& call, const Model& model, const InferReply& reply) {
  if (!reply.status.ok()) return reply.status;
  for (const RequestedOutput& requested : call.outputs) {
    if (requested.index >= reply.outputs.size() || requested.index >= reply.payload.size() ||
        requested.index >= model.outputs.size()) {
      return wrong_reply(model, fmt::format("without its output {}", requested.index));
    }
    const Result<std::size_t> bytes = byte_size(reply.outputs[requested.index]);
    if (!bytes.ok() || bytes.value() != reply.payload[requested.index].size()) {
      return wrong_reply(model, fmt::format("with {} bytes for output {}, which is {}",
                                            reply.payload[requested.index].size(),
                                            in_quotes(model.outputs[requested.index].name),
                                            to_string(reply.outputs[requested.index])));
    }
    if (Status whole = check_elements(model, reply, requested.index); !whole.ok()) return whole;
  }
  return {};
}

Status check_rows(const InferCall& call, const Model& model, Replies replies) {
  if (replies.empty() || replies.size() != call.rows) {
    return wrong_reply(model, fmt::format("{} of {} rows", replies.size(), call.rows));
  }
  for (const InferReply& reply : replies) {
    if (Status good = check_reply(call, model, reply); !good.ok()) return good;
    for (const RequestedOutput& requested : call.outputs) {
      const TensorSpec& spec = reply.outputs[requested.index];
      const TensorSpec& first = replies[0].outputs[requested.index];
      if (spec.type == first.type && spec.shape == first.shape) continue;
      return wrong_reply(model, fmt::format("rows of different shape: {} and {}", to_string(first),
                                            to_string(spec)));
    }
  }
  return {};
}

Bytes joined_rows(Replies replies, std::size_t output) {
  if (replies.size() == 1) return replies[0].payload[output];
  std::vector<std::byte> bytes;
  bytes.reserve(replies.size() * replies[0].payload[output].size());
  for (const InferReply& reply : replies) {
    const auto row = reply.payload[output].view();
    bytes.insert(bytes.end(), row.begin(), row.end());
  }
  return Bytes::own(std::move(bytes));
}

std::span<const std::string> labels_of(const Model& model, std::size_t output) {
  if (!model.description || output >= model.description->labels.size()) return {};
  return model.description->labels[output].labels;
}

ResponseOutput classified(ResponseOutput output, const Model& model,
                          const RequestedOutput& requested, Replies replies) {
  for (const InferReply& reply : replies) {
    append_highest(output.labels, output.spec.type, reply.payload[requested.index].view(),
                   requested.classification, labels_of(model, requested.index));
  }
  const auto rows = static_cast<std::int64_t>(replies.size());
  output.spec.shape = {static_cast<std::int64_t>(output.labels.size()) / rows};
  output.spec.whole = model.outputs[requested.index].whole;
  output.spec.shape = batch_shape(output.spec, rows);
  return output;
}

}  // namespace

Result<std::vector<ResponseOutput>> gather(const InferCall& call, const Model& model,
                                           std::span<const InferReply> replies) {
  if (Status good = check_rows(call, model, replies); !good.ok()) return good;
  std::vector<ResponseOutput> outputs;
  outputs.reserve(call.outputs.size());
  for (const RequestedOutput& requested : call.outputs) {
    const TensorSpec& row = replies[0].outputs[requested.index];
    ResponseOutput output;
    output.spec.name = model.outputs[requested.index].name;
    output.spec.type = row.type;
    if (requested.classification > 0) {
      outputs.push_back(classified(std::move(output), model, requested, replies));
      continue;
    }
    output.spec.shape = row.shape;
    output.spec.whole = model.outputs[requested.index].whole;
    output.spec.shape = batch_shape(output.spec, static_cast<std::int64_t>(replies.size()));
    output.data = joined_rows(replies, requested.index);
    outputs.push_back(std::move(output));
  }
  return outputs;
}

std::string lengths_and_texts(const std::vector<std::string>& texts) {
  std::string raw;
  for (const std::string& text : texts) append_element(raw, text);
  return raw;
}

}  // namespace gpulet::net::kserve
