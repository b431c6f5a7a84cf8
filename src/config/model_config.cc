#include "gpulet/config/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

#include "config/reading.h"
#include "gpulet/base/sha256.h"

namespace gpulet::config {
namespace {

constexpr double kLongestTimeoutMs = 24 * 3600 * 1000.0;
constexpr std::uint32_t kLongestQueue = 1U << 20U;

QueuePolicy read_queue_policy(const JsonCursor& cursor) {
  QueuePolicy policy;
  ObjectReader(cursor)
      .optional("timeout_action", choice(policy.timeout_action, {"reject", "delay"}))
      .optional("default_timeout_ms",
                milliseconds(policy.default_timeout, between(0, kLongestTimeoutMs)))
      .optional("allow_timeout_override",
                into(policy.allow_timeout_override, std::mem_fn(&JsonCursor::boolean)))
      .optional("max_queue_size", count(policy.max_queue_size, 0, kLongestQueue))
      .read();
  return policy;
}

void read_level_policies(const JsonCursor& cursor, QueueRules& rules) {
  for (const auto& [name, policy] : cursor.members()) {
    const auto level = parse_number<std::uint32_t>(name);
    if (!level || name.starts_with('0') || *level < 1 || *level > rules.priority_levels) {
      policy.fail(in_quotes(name) + " is not a priority level",
                  fmt::format("write a level from 1 to {}", rules.priority_levels));
    } else {
      rules.level_policies.emplace(*level, read_queue_policy(policy));
    }
  }
}

std::optional<QueueRules> read_queue(const JsonCursor& cursor) {
  QueueRules rules;
  const auto has_levels = [&rules](const JsonCursor& at) {
    if (rules.priority_levels == 0 && !at.missing()) {
      at.fail("there are no levels without priority_levels",
              R"(write "priority_levels" beside it, or take it out)");
    }
    return rules.priority_levels > 0;
  };
  const auto default_level = [&](const JsonCursor& at) {
    if (has_levels(at)) rules.default_priority_level = at.count(1, rules.priority_levels);
  };
  const auto level_policies = [&](const JsonCursor& at) {
    if (has_levels(at)) read_level_policies(at, rules);
  };
  ObjectReader(cursor)
      .optional("priority_levels", count(rules.priority_levels, 0, kMostPriorityLevels))
      .required("default_priority_level", default_level)
      .optional("default_policy", into(rules.default_policy, read_queue_policy))
      .optional("level_policies", level_policies)
      .read();
  return rules == QueueRules{} ? std::nullopt : std::optional(std::move(rules));
}

constexpr std::int64_t kLargestDimension = 1 << 30;
constexpr std::size_t kMostDimensions = 8;
constexpr std::size_t kMostTensors = 64;
constexpr std::size_t kImageDimensions = 3;
constexpr std::size_t kMostCells = 1024;  // of a measurement

DataType read_type(const JsonCursor& cursor) {
  static constexpr DataType kTypes[] = {
      DataType::boolean, DataType::uint8, DataType::int8, DataType::int16, DataType::int32,
      DataType::int64,   DataType::fp16,  DataType::bf16, DataType::fp32,  DataType::fp64};
  std::vector<std::string_view> names;
  for (const DataType type : kTypes) names.push_back(to_string(type));
  return kTypes[cursor.choice(names)];
}

void read_shape(const JsonCursor& cursor, TensorSpec& tensor) {
  for (const JsonCursor& dimension : cursor.elements(
           "the dimensions of one request's tensor, at most 8: [3,224,224]", 0, kMostDimensions)) {
    if (dimension.holds(-1)) {
      dimension.fail("-1: a dimension of any size is not supported",
                     "write the largest size that occurs, and pad smaller inputs to it");
      return;
    }
    tensor.shape.push_back(dimension.integer(1, kLargestDimension));
  }
  if (cursor.status().ok() && !byte_size(tensor).ok()) {
    cursor.fail(to_string(tensor) + " has more bytes than can be counted",
                "write smaller dimensions");
  }
}

// `others`: keys that other code reads.
TensorSpec read_tensor(const JsonCursor& cursor,
                       std::initializer_list<std::string_view> others = {}) {
  TensorSpec tensor;
  const auto read_name = [](const JsonCursor& at) {
    return at.text("the tensor's name in quotes");
  };
  ObjectReader(cursor)
      .required("name", into(tensor.name, read_name))
      .required("type", into(tensor.type, read_type))
      .required("shape", [&tensor](const JsonCursor& shape) { read_shape(shape, tensor); })
      .elsewhere(others)
      .read();
  return tensor;
}

// The formats of the inputs, whose other keys have been read.
void read_formats(const JsonCursor& inputs, ModelConfig& model) {
  const std::vector<JsonCursor> elements = inputs.elements("inputs", 0, kMostTensors);
  for (std::size_t i = 0; i < std::min(elements.size(), model.inputs.size()); ++i) {
    const auto format = elements[i].find("format");
    if (!format) continue;
    if (model.inputs[i].shape.size() != kImageDimensions) {
      format->fail("only an input of three dimensions is an image",
                   "take the format out, or correct the shape");
      continue;
    }
    model.formats[model.inputs[i].name] =
        format->choice({"NCHW", "NHWC"}) == 0 ? ImageFormat::nchw : ImageFormat::nhwc;
  }
}

MeasuredCell read_cell(const JsonCursor& cursor) {
  MeasuredCell cell;
  const auto share = [&cell](const JsonCursor& at) {
    cell.share = Share{static_cast<int>(at.count(1, 100))};
  };
  ObjectReader(cursor)
      .required("batch", count(cell.batch, 1, kLargestBatch))
      .required("partition", share)
      .required("latency_ms", number(cell.latency_ms, above(0)))
      .optional("p99_ms", number(cell.p99_ms, above(0)))
      .optional("cv", number(cell.cv, at_least(0)))
      .read();
  return cell;
}

Measurement read_measurement(const JsonCursor& cursor) {
  Measurement measured;
  std::set<std::pair<Share, std::uint32_t>> seen;
  const auto cells = [&](const JsonCursor& at) {
    for (const JsonCursor& one : at.elements(
             R"(a list like [{"batch":1,"partition":100,"latency_ms":3.2}])", 1, kMostCells)) {
      const MeasuredCell& cell = measured.cells.emplace_back(read_cell(one));
      if (!seen.emplace(cell.share, cell.batch).second)
        one.fail("this batch and partition occur twice", "keep one of them");
    }
  };
  ObjectReader(cursor)
      .required("cells", cells)
      .optional("memory_mb", number(measured.memory_mb, above(0)))
      .read();
  return measured;
}

void read_measured(const JsonCursor& cursor, ModelConfig& model) {
  for (const auto& [type, measured] : cursor.members()) {
    if (!is_name(type)) {
      measured.fail(in_quotes(type) + " is not a type of devices",
                    "write the \"type\" of devices in a backend's file");
      continue;
    }
    model.measured.emplace(type, read_measurement(measured));
  }
}

void read_labels(const JsonCursor& labels, ModelConfig& model) {
  std::vector<std::string_view> outputs;
  for (const TensorSpec& output : model.outputs) outputs.push_back(output.name);
  for (const auto& [output, file] : labels.members()) {
    if (std::find(outputs.begin(), outputs.end(), output) == outputs.end()) {
      file.fail("the model has no output " + in_quotes(output),
                "write one of these: " + joined(outputs));
      return;
    }
    model.labels[output] = file.path("the path of a text file with one label a line");
  }
}

void read_file(const JsonCursor& cursor, ModelConfig& model) {
  constexpr std::string_view kExpected = "the path or the URL of the model's TorchScript file";
  if (const std::string text = cursor.is_text() ? cursor.text(kExpected) : std::string();
      looks_like_url(text)) {
    Result<Url> url = parse_url(text);
    model.remote.emplace();
    if (url.ok()) {
      model.remote->url = std::move(url).value();
    } else {
      cursor.fail(url.status().message(), "or write the path of a file");
    }
    return;
  }
  model.file = cursor.path(kExpected);
}

void read_digest(const JsonCursor& cursor, ModelConfig& model) {
  const std::string text = cursor.text("the SHA-256 of the file");
  if (!cursor.valid()) return;
  if (!is_sha256(text)) {
    cursor.fail("it is not a SHA-256", "write 64 lower-case hex digits, as sha256sum prints them");
  } else if (!model.remote) {
    cursor.fail("only a file in a store has an expected SHA-256",
                "take it out, or write a URL as \"file\"");
  } else {
    model.remote->sha256 = text;
  }
}

std::vector<TensorSpec> read_tensors_with(const JsonCursor& cursor,
                                          std::initializer_list<std::string_view> others) {
  constexpr auto kExpected = R"(a list like [{"name":"image","type":"FP32","shape":[3,224,224]}])";
  std::vector<TensorSpec> tensors =
      read_named(cursor.elements(kExpected, 1, kMostTensors), "tensor",
                 [others](const JsonCursor& one) { return read_tensor(one, others); });
  if (cursor.status().ok() && !byte_size(tensors).ok()) {
    cursor.fail("the tensors together have more bytes than can be counted",
                "write smaller dimensions");
  }
  return tensors;
}

void read_inputs(const JsonCursor& cursor, ModelConfig& model) {
  model.inputs = read_tensors_with(cursor, {"format"});
  read_formats(cursor, model);
}

}  // namespace

std::vector<TensorSpec> read_tensors(const JsonCursor& cursor) {
  return read_tensors_with(cursor, {});
}

ModelConfig read_model(const JsonCursor& cursor) {
  ModelConfig model;
  ObjectReader(cursor)
      .required("name", name(model.name))
      .required("file", [&model](const JsonCursor& file) { read_file(file, model); })
      .optional("sha256", [&model](const JsonCursor& digest) { read_digest(digest, model); })
      .required("inputs", [&model](const JsonCursor& inputs) { read_inputs(inputs, model); })
      .required("outputs", into(model.outputs, read_tensors))
      .required("slo_ms", number(model.slo_ms, above(0)))
      .optional("rate", number(model.rate, at_least(0)))
      .optional("max_batch", count(model.max_batch, 1, kLargestBatch))
      .optional("memory_mb", number(model.memory_mb, above(0)))
      .optional("precision", choice(model.numerics.precision, {"full", "half", "bfloat16"}))
      .optional("memory_format",
                choice(model.numerics.channels_last, {"contiguous", "channels_last"}))
      .optional("largest_error", number(model.numerics.largest_error, between(0, 1)))
      .optional("labels", [&model](const JsonCursor& labels) { read_labels(labels, model); })
      .optional("queue", into(model.queue, read_queue))
      .optional("measured", [&model](const JsonCursor& at) { read_measured(at, model); })
      .read();
  return model;
}

std::string file_name_of(const ModelConfig& model) {
  return model.remote ? model.remote->url.file_name() : model.file.filename().string();
}

std::string place_of(const ModelConfig& model) {
  return model.remote ? model.remote->url.shown() : model.file.string();
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
