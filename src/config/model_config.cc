#include "gpulet/config/model_config.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "config/reading.h"

namespace gpulet::config {
namespace {

constexpr double kLongestTimeoutMs = 24 * 3600 * 1000.0;
constexpr std::uint32_t kLongestQueue = 1U << 20U;

QueuePolicy read_policy(const JsonCursor& cursor) {
  cursor.allow_keys(
      {"timeout_action", "default_timeout_ms", "allow_timeout_override", "max_queue_size"});
  QueuePolicy policy;
  if (const auto action = cursor.find("timeout_action")) {
    policy.timeout_action =
        action->choice({"reject", "delay"}) == 1 ? TimeoutAction::delay : TimeoutAction::reject;
  }
  if (const auto timeout = cursor.find("default_timeout_ms"))
    policy.default_timeout = from_ms(timeout->number(between(0, kLongestTimeoutMs)));
  if (const auto allowed = cursor.find("allow_timeout_override"))
    policy.allow_timeout_override = allowed->boolean();
  if (const auto size = cursor.find("max_queue_size"))
    policy.max_queue_size = size->count(0, kLongestQueue);
  return policy;
}

void read_levels(const JsonCursor& cursor, QueueRules& rules) {
  const std::string range = "from 1 to " + std::to_string(rules.priority_levels);
  if (rules.priority_levels == 0) {
    for (const std::string_view key : {"default_priority_level", "level_policies"}) {
      if (const auto found = cursor.find(key)) {
        found->fail("there are no levels without priority_levels",
                    R"(write "priority_levels" beside it, or take it out)");
      }
    }
    return;
  }
  rules.default_priority_level =
      cursor.required("default_priority_level").count(1, rules.priority_levels);
  const auto policies = cursor.find("level_policies");
  if (!policies) return;
  for (const auto& [name, policy] : policies->members()) {
    const auto level = parse_number<std::uint32_t>(name);
    if (!level || name.starts_with('0') || *level < 1 || *level > rules.priority_levels) {
      policy.fail(in_quotes(name) + " is not a priority level", "write a level " + range);
      continue;
    }
    rules.level_policies.emplace(*level, read_policy(policy));
  }
}

std::optional<QueueRules> read_queue(const JsonCursor& model) {
  const auto cursor = model.find("queue");
  if (!cursor) return std::nullopt;
  cursor->allow_keys(
      {"priority_levels", "default_priority_level", "default_policy", "level_policies"});
  QueueRules rules;
  if (const auto levels = cursor->find("priority_levels"))
    rules.priority_levels = levels->count(0, kMostPriorityLevels);
  read_levels(*cursor, rules);
  if (const auto policy = cursor->find("default_policy"))
    rules.default_policy = read_policy(*policy);
  return rules == QueueRules{} ? std::nullopt : std::optional(std::move(rules));
}

constexpr std::int64_t kLargestDimension = 1 << 30;
constexpr std::size_t kMostDimensions = 8;
constexpr std::size_t kMostTensors = 64;

DataType read_type(const JsonCursor& cursor) {
  static constexpr DataType kTypes[] = {
      DataType::boolean, DataType::uint8, DataType::int8, DataType::int16, DataType::int32,
      DataType::int64,   DataType::fp16,  DataType::bf16, DataType::fp32,  DataType::fp64};
  std::vector<std::string_view> names;
  for (const DataType type : kTypes) names.push_back(to_string(type));
  return kTypes[cursor.choice(names)];
}

TensorSpec read_tensor(const JsonCursor& cursor) {
  cursor.allow_keys({"name", "type", "shape"});
  TensorSpec tensor;
  tensor.name = cursor.required("name").text("the tensor's name in quotes");
  tensor.type = read_type(cursor.required("type"));
  const JsonCursor shape = cursor.required("shape");
  for (const JsonCursor& dimension : shape.elements(
           "the dimensions of one request's tensor, at most 8: [3,224,224]", 0, kMostDimensions)) {
    if (dimension.holds(-1)) {
      dimension.fail("-1: a dimension of any size is not supported",
                     "write the largest size that occurs, and pad smaller inputs to it");
      return tensor;
    }
    tensor.shape.push_back(dimension.integer(1, kLargestDimension));
  }
  if (cursor.status().ok() && !byte_size(tensor).ok()) {
    shape.fail(to_string(tensor) + " has more bytes than can be counted",
               "write smaller dimensions");
  }
  return tensor;
}

Numerics read_numerics(const JsonCursor& model) {
  static constexpr Precision kPrecisions[] = {Precision::full, Precision::half,
                                              Precision::bfloat16};
  Numerics numerics;
  if (const auto precision = model.find("precision")) {
    std::vector<std::string_view> names;
    for (const Precision known : kPrecisions) names.push_back(to_string(known));
    numerics.precision = kPrecisions[precision->choice(names)];
  }
  if (const auto format = model.find("memory_format"))
    numerics.channels_last = format->choice({"contiguous", "channels_last"}) == 1;
  if (const auto error = model.find("largest_error"))
    numerics.largest_error = error->number(between(0, 1));
  return numerics;
}

void read_labels_of(const JsonCursor& labels, const std::filesystem::path& file,
                    ModelConfig& model) {
  std::vector<std::string_view> outputs;
  for (const TensorSpec& output : model.outputs) outputs.push_back(output.name);
  for (const auto& [output, path] : labels.members()) {
    if (std::find(outputs.begin(), outputs.end(), output) == outputs.end()) {
      path.fail("the model has no output " + in_quotes(output),
                "write one of these: " + joined(outputs));
      return;
    }
    model.labels[output] =
        resolve(file, path.text("the path of a text file with one label a line"));
  }
}

ModelConfig read_model(const JsonCursor& cursor, const std::filesystem::path& file) {
  cursor.allow_keys({"name", "file", "inputs", "outputs", "slo_ms", "rate", "max_batch",
                     "memory_mb", "precision", "memory_format", "largest_error", "labels",
                     "queue"});
  ModelConfig model;
  model.name = cursor.required("name").name();
  model.file =
      resolve(file, cursor.required("file").text("the path of the model's TorchScript file"));
  model.inputs = read_tensors(cursor.required("inputs"), 1);
  model.outputs = read_tensors(cursor.required("outputs"), 1);
  model.slo_ms = cursor.required("slo_ms").number(above(0));
  if (const auto rate = cursor.find("rate")) model.rate = rate->number(at_least(0));
  if (const auto batch = cursor.find("max_batch")) model.max_batch = batch->count(1, kLargestBatch);
  if (const auto memory = cursor.find("memory_mb")) model.memory_mb = memory->number(above(0));
  model.numerics = read_numerics(cursor);
  if (const auto labels = cursor.find("labels")) read_labels_of(*labels, file, model);
  model.queue = read_queue(cursor);
  return model;
}

}  // namespace

std::vector<TensorSpec> read_tensors(const JsonCursor& cursor, std::size_t least) {
  std::vector<TensorSpec> tensors;
  UniqueNames names("tensor");
  for (const JsonCursor& element :
       cursor.elements(R"(a list like [{"name":"image","type":"FP32","shape":[3,224,224]}])", least,
                       kMostTensors)) {
    tensors.push_back(read_tensor(element));
    names.add(tensors.back().name, element.required("name"));
  }
  if (cursor.status().ok() && !byte_size(tensors).ok()) {
    cursor.fail("the tensors together have more bytes than can be counted",
                "write smaller dimensions");
  }
  return tensors;
}

std::vector<ModelConfig> read_models(const JsonCursor& root, const std::filesystem::path& file) {
  std::vector<ModelConfig> models;
  UniqueNames names("model");
  for (const JsonCursor& element : root.required("models").elements("a list of models", 1)) {
    models.push_back(read_model(element, file));
    names.add(models.back().name, element.required("name"));
  }
  return models;
}

Result<std::vector<ModelConfig>> parse_models(std::string_view text,
                                              const std::filesystem::path& file) {
  Result<ServingConfig> serving = parse_serving(text, file);
  if (!serving.ok()) return serving.status();
  return std::move(serving.value().models);
}

Result<std::vector<ModelConfig>> load_models(const std::filesystem::path& file) {
  Result<ServingConfig> serving = load_serving(file);
  if (!serving.ok()) return serving.status();
  return std::move(serving.value().models);
}

}  // namespace gpulet::config
