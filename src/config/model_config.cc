#include "gpulet/config/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "config/reading.h"
#include "gpulet/base/sha256.h"
#include "gpulet/core/tensor.h"

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
constexpr std::size_t kMostCells = 1024;                          // of a measurement
constexpr std::int64_t kLargestVersion = std::int64_t{1} << 53U;  // exact in JSON

DataType read_type(const JsonCursor& cursor) {
  static constexpr DataType kTypes[] = {DataType::boolean, DataType::uint8, DataType::int8,
                                        DataType::int16,   DataType::int32, DataType::int64,
                                        DataType::fp16,    DataType::bf16,  DataType::fp32,
                                        DataType::fp64,    DataType::bytes};
  std::vector<std::string_view> names;
  for (const DataType type : kTypes) names.push_back(to_string(type));
  return kTypes[cursor.choice(names)];
}

// Whether shapes may have a dynamic dimension.
enum class Shapes : std::uint8_t { fixed, dynamic };

void read_shape(const JsonCursor& cursor, Shapes shapes, TensorSpec& tensor) {
  for (const JsonCursor& dimension : cursor.elements(
           "the dimensions of one request's tensor, at most 8: [3,224,224]", 0, kMostDimensions)) {
    if (!dimension.holds(kAnyLength)) {
      tensor.shape.push_back(dimension.integer(1, kLargestDimension));
    } else if (shapes == Shapes::fixed) {
      return dimension.fail("-1: an application's tensors have fixed shapes",
                            "write the size that all requests have");
    } else if (tensor.type == DataType::bytes) {
      return dimension.fail("-1: a tensor of type BYTES has a fixed shape",
                            "write the number of strings that all requests have");
    } else if (is_dynamic(tensor)) {
      return dimension.fail("-1: a tensor has at most one dimension of any size",
                            "write the size of the others");
    } else {
      tensor.shape.push_back(kAnyLength);
    }
  }
  if (tensor.type == DataType::bytes) tensor.max_bytes = default_slot_bytes(tensor.shape);
  if (cursor.status().ok() && !byte_size(with_length({tensor}, 1)).ok()) {
    cursor.fail(to_string(tensor) + " has more bytes than can be counted",
                "write smaller dimensions");
  }
}

void read_max_bytes(const JsonCursor& cursor, TensorSpec& tensor) {
  if (tensor.type != DataType::bytes) {
    cursor.fail("only a tensor of type BYTES has a limit of its own", "take it out");
    return;
  }
  const std::size_t least = element_count(tensor) * byte_size(DataType::bytes);
  tensor.max_bytes = cursor.count(static_cast<std::uint32_t>(least), kMostSlotBytes);
}

// `others`: keys that other code reads.
TensorSpec read_tensor(const JsonCursor& cursor, Shapes shapes,
                       std::initializer_list<std::string_view> others) {
  TensorSpec tensor;
  const auto read_name = [](const JsonCursor& at) {
    return at.text("the tensor's name in quotes");
  };
  ObjectReader(cursor)
      .required("name", into(tensor.name, read_name))
      .required("type", into(tensor.type, read_type))
      .required("shape", [&](const JsonCursor& shape) { read_shape(shape, shapes, tensor); })
      .optional("max_bytes", [&tensor](const JsonCursor& at) { read_max_bytes(at, tensor); })
      .elsewhere(others)
      .read();
  return tensor;
}

// Of the integers that a range may have; empty: the type has fractions. Those of 64 bits are exact
// up to here.
std::optional<ValueRange> integer_limits(DataType type) {
  constexpr double kExact = 9007199254740992.0;
  switch (type) {
    case DataType::boolean:
      return ValueRange{0, 1};
    case DataType::uint8:
      return ValueRange{0, 255};
    case DataType::int8:
      return ValueRange{-128, 127};
    case DataType::int16:
      return ValueRange{-32768, 32767};
    case DataType::int32:
      return ValueRange{-2147483648.0, 2147483647.0};
    case DataType::int64:
      return ValueRange{-kExact, kExact};
    default:
      return std::nullopt;
  }
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

// As read_formats().
void read_ranges(const JsonCursor& inputs, ModelConfig& model) {
  const std::vector<JsonCursor> elements = inputs.elements("inputs", 0, kMostTensors);
  for (std::size_t i = 0; i < std::min(elements.size(), model.inputs.size()); ++i) {
    const auto range = elements[i].find("range");
    if (!range) continue;
    const auto bounds = range->elements("the least and the greatest value: [0,29999]", 2, 2);
    if (!range->valid()) continue;
    const ValueRange read{bounds[0].number(NumberRange{}), bounds[1].number(NumberRange{})};
    if (!range->valid()) continue;
    if (const Status fits = check_range(model.inputs[i].type, read); fits.ok()) {
      model.ranges.emplace(model.inputs[i].name, read);
    } else {
      range->fail(fits.message(), "write the least and the greatest value of the input");
    }
  }
}

MeasuredCell read_cell(const JsonCursor& cursor) {
  MeasuredCell cell;
  const auto share = [&cell](const JsonCursor& at) {
    cell.share = Share{static_cast<int>(at.count(1, 100))};
  };
  const auto length = [&cell](const JsonCursor& at) {
    cell.length = at.integer(1, kLargestDimension);
  };
  ObjectReader(cursor)
      .required("batch", count(cell.batch, 1, kLargestBatch))
      .required("partition", share)
      .required("latency_ms", number(cell.latency_ms, above(0)))
      .optional("length", length)
      .optional("p99_ms", number(cell.p99_ms, above(0)))
      .optional("cv", number(cell.cv, at_least(0)))
      .read();
  return cell;
}

Measurement read_measurement(const JsonCursor& cursor) {
  Measurement measured;
  std::set<std::tuple<std::int64_t, Share, std::uint32_t>> seen;
  const auto cells = [&](const JsonCursor& at) {
    for (const JsonCursor& one : at.elements(
             R"(a list like [{"batch":1,"partition":100,"latency_ms":3.2}])", 1, kMostCells)) {
      const MeasuredCell& cell = measured.cells.emplace_back(read_cell(one));
      if (!seen.emplace(cell.length, cell.share, cell.batch).second)
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
    if (is_dynamic(output_named(model, output))) {
      file.fail("output " + in_quotes(output) + " has a dimension of any size",
                "label outputs of fixed shape, or take it out");
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

void read_version(const JsonCursor& cursor, ModelConfig& model) {
  model.version = static_cast<std::uint64_t>(cursor.integer(1, kLargestVersion));
}

void check_total(const JsonCursor& cursor, const std::vector<TensorSpec>& tensors) {
  if (cursor.status().ok() && !byte_size(tensors).ok()) {
    cursor.fail("the tensors together have more bytes than can be counted",
                "write smaller dimensions");
  }
}

std::vector<TensorSpec> read_tensors(const JsonCursor& cursor, Shapes shapes,
                                     std::initializer_list<std::string_view> others) {
  constexpr auto kExpected = R"(a list like [{"name":"image","type":"FP32","shape":[3,224,224]}])";
  std::vector<TensorSpec> tensors =
      read_named(cursor.elements(kExpected, 1, kMostTensors), "tensor",
                 [&](const JsonCursor& element) { return read_tensor(element, shapes, others); });
  check_total(cursor, with_length(tensors, 1));
  return tensors;
}

std::vector<TensorSpec> read_model_tensors(const JsonCursor& cursor) {
  return read_tensors(cursor, Shapes::dynamic, {});
}

void read_inputs(const JsonCursor& cursor, ModelConfig& model) {
  model.inputs = read_tensors(cursor, Shapes::dynamic, {"format", "range"});
  read_formats(cursor, model);
  read_ranges(cursor, model);
}

// ---- dynamic dimensions

// Ascending.
std::vector<std::int64_t> read_lengths(const JsonCursor& cursor) {
  std::vector<std::int64_t> lengths;
  for (const JsonCursor& one :
       cursor.elements("a list of 1 to 128 lengths: [32,64,128]", 1, kMostBuckets)) {
    const std::int64_t length = one.integer(1, kLargestDimension);
    if (!one.valid()) return {};
    if (!lengths.empty() && length <= lengths.back()) {
      one.fail("lengths must rise", "write each length once, the shortest first");
      return {};
    }
    lengths.push_back(length);
  }
  return lengths;
}

// Where all dynamic dimensions of the inputs are.
void read_dimension(const JsonCursor& cursor, const std::vector<TensorSpec>& inputs) {
  const auto at = static_cast<std::size_t>(cursor.count(0, kMostDimensions - 1));
  if (!cursor.valid()) return;
  for (const TensorSpec& input : inputs) {
    if (!is_dynamic(input) || (at < input.shape.size() && input.shape[at] == kAnyLength)) continue;
    return cursor.fail(fmt::format("-1 is at another place in input {}", in_quotes(input.name)),
                       "correct the number, which counts from 0, or take it out");
  }
}

// Sets the number for all inputs (`only` empty) or for that one.
void set_padding(const JsonCursor& cursor, const std::vector<TensorSpec>& inputs,
                 std::string_view only, std::vector<double>& padding) {
  const double value = cursor.number(NumberRange{});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_dynamic(inputs[i]) || (!only.empty() && inputs[i].name != only)) continue;
    padding[i] = value;
  }
}

void read_paddings(const JsonCursor& cursor, const std::vector<TensorSpec>& inputs,
                   std::vector<double>& padding) {
  std::vector<std::string_view> names;
  for (const TensorSpec& input : inputs) {
    if (is_dynamic(input)) names.push_back(input.name);
  }
  for (const auto& [name, value] : cursor.members()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      value.fail("no input " + in_quotes(name) + " has a dimension of -1",
                 names.empty() ? "take it out" : "write one of these: " + joined(names));
      continue;
    }
    set_padding(value, inputs, name, padding);
  }
}

DynamicLength read_pad(const JsonCursor& cursor, const std::vector<TensorSpec>& inputs) {
  DynamicLength dynamic;
  dynamic.padding.assign(inputs.size(), 0);
  ObjectReader(cursor)
      .required("buckets", into(dynamic.lengths, read_lengths))
      .optional("value",
                [&](const JsonCursor& at) { set_padding(at, inputs, {}, dynamic.padding); })
      .optional("values", [&](const JsonCursor& at) { read_paddings(at, inputs, dynamic.padding); })
      .optional("dim", [&](const JsonCursor& at) { read_dimension(at, inputs); })
      .read();
  if (!cursor.valid()) return dynamic;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_dynamic(inputs[i]) || element_of(inputs[i], dynamic.padding[i])) continue;
    cursor.fail(fmt::format("input {} of {} cannot be filled with {}", in_quotes(inputs[i].name),
                            to_string(inputs[i].type), dynamic.padding[i]),
                R"(write a number of that type in "value" or "values"; FP16 and BF16 take 0)");
  }
  return dynamic;
}

void read_exact_lengths(const JsonCursor& cursor, ModelConfig& model) {
  if (model.dynamic)
    return cursor.fail(R"("pad" has the lengths)", R"(take one of "pad" and "lengths" out)");
  model.dynamic = DynamicLength{read_lengths(cursor)};
}

// A model with buckets is measured in each of them.
void check_measured(const JsonCursor& cursor, const ModelConfig& model) {
  const std::vector<std::int64_t> lengths =
      model.dynamic ? model.dynamic->lengths : std::vector<std::int64_t>{0};
  for (const auto& [type, measured] : model.measured) {
    const bool known =
        std::all_of(measured.cells.begin(), measured.cells.end(), [&](const MeasuredCell& cell) {
          return std::find(lengths.begin(), lengths.end(), cell.length) != lengths.end();
        });
    if (known) continue;
    return cursor.required("measured")
        .required(type)
        .fail("the cells are not those of the model's buckets",
              model.dynamic ? R"(write "length" in each cell, with the length of a bucket)"
                            : R"(take "length" out: the model has fixed shapes)");
  }
}

void check_dynamic(const JsonCursor& cursor, const ModelConfig& model) {
  const bool dynamic = is_dynamic(model.inputs);
  if (!cursor.valid()) return;
  if (model.dynamic && !dynamic) {
    const std::string_view key = model.dynamic->padding.empty() ? "lengths" : "pad";
    return cursor.required(key).fail("no input has a dimension of any size",
                                     "write -1 in a shape, or take the key out");
  }
  if (!dynamic && is_dynamic(model.outputs)) {
    return cursor.required("outputs").fail(
        "-1: an output has the length of the inputs, which are fixed",
        "write the size, or -1 in the shape of the input that determines it");
  }
  if (dynamic && !model.dynamic) {
    return cursor.required("inputs").fail(
        "-1: a dimension of any size needs buckets",
        R"(write "pad":{"value":0,"buckets":[32,64,128]} beside it with the lengths to pad to, or )"
        R"("lengths":[32,64,128] with those that requests have)");
  }
  if (!dynamic) return;
  if (has_bytes_tensor(model.inputs) || has_bytes_tensor(model.outputs)) {
    return cursor.required("inputs").fail("-1: a model with tensors of type BYTES has fixed shapes",
                                          "write the size");
  }
  const std::int64_t longest = model.dynamic->lengths.back();
  check_total(cursor.required("inputs"), with_length(model.inputs, longest));
  check_total(cursor.required("outputs"), with_length(model.outputs, longest));
}

}  // namespace

std::vector<TensorSpec> read_tensors(const JsonCursor& cursor) {
  return read_tensors(cursor, Shapes::fixed, {});
}

Status check_range(DataType type, const ValueRange& range) {
  const auto refuse = [&](const std::string& why) {
    return Status(StatusCode::invalid, fmt::format("the range [{},{}] of {}: {}", range.least,
                                                   range.most, to_string(type), why));
  };
  if (type == DataType::bytes) return refuse("strings have none");
  if (!(range.least <= range.most)) return refuse("the first number is the least");
  const auto limits = integer_limits(type);
  if (!limits) return {};
  if (std::trunc(range.least) != range.least || std::trunc(range.most) != range.most)
    return refuse("the numbers of this type are whole");
  if (range.least < limits->least || range.most > limits->most)
    return refuse(fmt::format("the type has {} to {}", limits->least, limits->most));
  return {};
}

ModelConfig read_model(const JsonCursor& cursor) {
  ModelConfig model;
  ObjectReader(cursor)
      .required("name", name(model.name))
      .required("file", [&model](const JsonCursor& file) { read_file(file, model); })
      .optional("sha256", [&model](const JsonCursor& digest) { read_digest(digest, model); })
      .required("inputs", [&model](const JsonCursor& inputs) { read_inputs(inputs, model); })
      .required("outputs", into(model.outputs, read_model_tensors))
      .optional("pad",
                [&model](const JsonCursor& at) { model.dynamic = read_pad(at, model.inputs); })
      .optional("lengths", [&model](const JsonCursor& at) { read_exact_lengths(at, model); })
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
      .optional("version", [&model](const JsonCursor& at) { read_version(at, model); })
      .optional("measured", [&model](const JsonCursor& at) { read_measured(at, model); })
      .read();
  check_dynamic(cursor, model);
  if (cursor.valid()) check_measured(cursor, model);
  return model;
}

namespace {

// The cells of that bucket, as those of a model with fixed shapes.
std::map<std::string, Measurement> measured_at(std::int64_t length, const ModelConfig& model) {
  std::map<std::string, Measurement> of_bucket;
  for (const auto& [type, measured] : model.measured) {
    Measurement one{{}, measured.memory_mb};
    for (const MeasuredCell& cell : measured.cells) {
      if (cell.length == length) one.cells.emplace_back(cell).length = 0;
    }
    if (!one.cells.empty()) of_bucket.emplace(type, std::move(one));
  }
  return of_bucket;
}

}  // namespace

std::vector<ModelConfig> buckets_of(const ModelConfig& model) {
  if (!model.dynamic) return {model};
  std::vector<ModelConfig> buckets;
  std::int64_t shorter = 0;
  for (const std::int64_t length : model.dynamic->lengths) {
    ModelConfig& one = buckets.emplace_back(model);
    one.name = bucket_name(model.name, length);
    one.inputs = with_length(model.inputs, length);
    one.outputs = with_length(model.outputs, length);
    one.rate = model.rate * static_cast<double>(length - shorter) /
               static_cast<double>(model.dynamic->lengths.back());
    one.measured = measured_at(length, model);
    one.dynamic.reset();
    Bucket& bucket = one.bucket.emplace();
    bucket.model = model.name;
    bucket.length = length;
    bucket.inputs = model.inputs;
    bucket.outputs = model.outputs;
    for (std::size_t i = 0; i < model.dynamic->padding.size(); ++i) {
      bucket.padding.push_back(element_of(model.inputs[i], model.dynamic->padding[i])
                                   .value_or(std::vector<std::byte>()));
    }
    shorter = length;
  }
  return buckets;
}

std::vector<ModelConfig> with_buckets(const std::vector<ModelConfig>& models) {
  std::vector<ModelConfig> all;
  for (const ModelConfig& model : models) {
    std::vector<ModelConfig> buckets = buckets_of(model);
    std::move(buckets.begin(), buckets.end(), std::back_inserter(all));
  }
  return all;
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
