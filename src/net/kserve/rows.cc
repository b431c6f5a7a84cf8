#include <algorithm>
#include <cstring>
#include <utility>

#include "gpulet/net/kserve/infer_call.h"
#include "wording.h"

namespace gpulet::net::kserve {
namespace {

std::string batched(const TensorSpec& spec) {
  std::vector<std::int64_t> shape{-1};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  return shown(shape);
}

const TensorSpec* find_input(const Model& model, std::string_view name) {
  for (const TensorSpec& spec : model.inputs) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

Status unexpected_input(const Model& model, const GivenInput& input) {
  std::string allowed;
  for (const TensorSpec& spec : model.inputs)
    allowed += (allowed.empty() ? "" : ", ") + in_quotes(spec.name);
  return invalid("unexpected inference input " + in_quotes(input.name) + " for model " +
                 in_quotes(model.name) + "; it takes " + allowed);
}

Status check_shape(const Model& model, const TensorSpec& spec, const GivenInput& input) {
  const bool same = input.shape.size() == spec.shape.size() + 1 &&
                    std::equal(spec.shape.begin(), spec.shape.end(), input.shape.begin() + 1);
  if (!same) {
    const bool same_rank = input.shape.size() == spec.shape.size() + 1;
    return invalid("unexpected shape for input " + in_quotes(input.name) + " for model " +
                   in_quotes(model.name) + "; expected " + batched(spec) +
                   " with the batch in front, got " + shown(input.shape) +
                   (same_rank ? "; sizes are fixed: pad or cut the input to these" : ""));
  }
  if (input.shape[0] < 1 || input.shape[0] > static_cast<std::int64_t>(model.max_batch)) {
    return invalid("input " + in_quotes(input.name) +
                   ": inference request batch-size must be 1 to " +
                   std::to_string(model.max_batch) + " for model " + in_quotes(model.name) +
                   "; was " + std::to_string(input.shape[0]));
  }
  return {};
}

// Every byte but 0 is true, and becomes 1: any other would be no bool in the executor's memory.
void normalise_booleans(Bytes& booleans) {
  const auto given = booleans.view();
  const auto is_neither = [](std::byte value) { return value > std::byte{1}; };
  if (std::none_of(given.begin(), given.end(), is_neither)) return;
  std::vector<std::byte> normal(given.begin(), given.end());
  for (std::byte& value : normal) value = std::min(value, std::byte{1});
  booleans = Bytes::own(std::move(normal));
}

using InOrder = std::vector<const GivenInput*>;  // the model's

// Each of the model's inputs once, all fitting, with the same number of rows.
Result<InOrder> in_order(const Model& model, std::vector<GivenInput>& inputs) {
  InOrder order(model.inputs.size(), nullptr);
  for (GivenInput& input : inputs) {
    if (Status fits = check_input(model, input, input.data.size()); !fits.ok()) return fits;
    const auto at = static_cast<std::size_t>(find_input(model, input.name) - model.inputs.data());
    if (order[at] != nullptr) {
      return invalid("input " + in_quotes(input.name) + " is given twice for model " +
                     in_quotes(model.name));
    }
    if (input.type == DataType::boolean) normalise_booleans(input.data);
    order[at] = &input;
  }
  if (inputs.size() < model.inputs.size()) {
    const auto missing = std::find(order.begin(), order.end(), nullptr) - order.begin();
    return invalid("expected " + std::to_string(model.inputs.size()) + " inputs but got " +
                   std::to_string(inputs.size()) + " inputs for model " + in_quotes(model.name) +
                   "; missing is " +
                   in_quotes(model.inputs[static_cast<std::size_t>(missing)].name));
  }
  for (const GivenInput* const input : order) {
    if (input->shape[0] != order[0]->shape[0]) {
      return invalid("input " + in_quotes(input->name) +
                     " batch size does not match other inputs for model " + in_quotes(model.name) +
                     ": " + std::to_string(input->shape[0]) + " and " +
                     std::to_string(order[0]->shape[0]));
    }
  }
  return order;
}

// The rows' payloads one after another: of each row, its part of every input.
Bytes interleaved(const InOrder& order, std::size_t rows) {
  std::size_t total = 0;
  for (const GivenInput* const input : order) total += input->data.size();
  std::vector<std::byte> bytes;
  bytes.reserve(total);
  for (std::size_t row = 0; row < rows; ++row) {
    for (const GivenInput* const input : order) {
      const std::size_t length = input->data.size() / rows;
      const auto part = input->data.view().subspan(row * length, length);
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
  }
  return Bytes::own(std::move(bytes));
}

}  // namespace

Status check_id(std::string_view id) {
  if (id.size() <= kMaxIdBytes) return {};
  return invalid("the request's id must be at most " + std::to_string(kMaxIdBytes) +
                 " bytes; has " + std::to_string(id.size()));
}

Status check_input(const Model& model, const GivenInput& input, std::uint64_t bytes) {
  const TensorSpec* const spec = find_input(model, input.name);
  if (spec == nullptr) return unexpected_input(model, input);
  if (input.type != spec->type) {
    return invalid("inference input " + in_quotes(input.name) + " data-type is '" +
                   std::string(to_string(input.type)) + "', model " + in_quotes(model.name) +
                   " expects '" + std::string(to_string(spec->type)) + "'");
  }
  if (Status shape = check_shape(model, *spec, input); !shape.ok()) return shape;
  const Result<std::size_t> row_bytes = byte_size(*spec);
  if (!row_bytes.ok()) return row_bytes.status();
  std::uint64_t wanted = 0;
  if (__builtin_mul_overflow(row_bytes.value(), static_cast<std::uint64_t>(input.shape[0]),
                             &wanted)) {
    return invalid("input " + in_quotes(input.name) + ": its size does not fit a machine word");
  }
  if (bytes != wanted) {
    return invalid("input byte size mismatch for input " + in_quotes(input.name) + " for model " +
                   in_quotes(model.name) + "; expected " + std::to_string(wanted) + ", got " +
                   std::to_string(bytes));
  }
  return {};
}

Result<std::vector<serve::InferRequest>> rows_of(const Model& model, std::vector<GivenInput> inputs,
                                                 Duration timeout) {
  const Result<InOrder> order = in_order(model, inputs);
  if (!order.ok()) return order.status();
  if (inputs.empty()) return invalid("model " + in_quotes(model.name) + " takes no inputs");
  const auto rows = static_cast<std::size_t>(inputs[0].shape[0]);
  const Bytes all =
      inputs.size() == 1 ? std::move(inputs[0].data) : interleaved(order.value(), rows);
  const std::size_t row_bytes = all.size() / rows;
  std::vector<serve::InferRequest> requests;
  requests.reserve(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    requests.push_back(serve::InferRequest{.tag = row,
                                           .model = model.name,
                                           .timeout = timeout,
                                           .inputs = model.inputs,
                                           .payload = all.slice(row * row_bytes, row_bytes)});
  }
  return requests;
}

Result<InferCall> call_of(const Model& model, std::vector<GivenInput> inputs, Duration timeout,
                          std::uint32_t priority) {
  Result<std::vector<serve::InferRequest>> rows = rows_of(model, std::move(inputs), timeout);
  if (!rows.ok()) return rows.status();
  InferCall call;
  call.model = model.name;
  call.requests = std::move(rows).value();
  if (priority != 0) {
    for (serve::InferRequest& request : call.requests) request.priority = priority;
  }
  call.rows = static_cast<std::uint32_t>(call.requests.size());
  return call;
}

}  // namespace gpulet::net::kserve
