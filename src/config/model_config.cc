#include "gpulet/config/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "config/description.h"
#include "config/encoded_image.h"
#include "config/input_values.h"
#include "config/reading.h"
#include "gpulet/base/sha256.h"

namespace gpulet::config {
namespace {

constexpr double kLongestTimeoutMs = 24 * 3600 * 1000.0;
constexpr std::uint32_t kLongestQueue = 1U << 20U;

QueuePolicy read_queue_policy(const JsonCursor& cursor) {
  QueuePolicy policy;
  ObjectReader(cursor)
      .optional(
          "timeout_action", choice(policy.timeout_action, {"reject", "delay"}),
          "What happens at the queue timeout: the request fails, or moves behind all requests "
          "of its level and of higher levels that are in time.")
      .optional("default_timeout_ms",
                milliseconds(policy.default_timeout, between(0, kLongestTimeoutMs)),
                "The queue timeout, counted from arrival. 0: none.")
      .optional("allow_timeout_override", boolean(policy.allow_timeout_override),
                "A request may set a shorter one.")
      .optional(
          "max_queue_size", count(policy.max_queue_size, 0, kLongestQueue),
          "How many requests of the level may wait. 0: only `max_queue` of the frontend's file "
          "limits them.")
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
    if (rules.priority_levels == 0 && at.type() != JsonCursor::Type::missing) {
      at.fail("there are no levels without priority_levels",
              R"(write "priority_levels" beside it, or take it out)");
    }
    return rules.priority_levels > 0;
  };
  const auto default_level = [&](const JsonCursor& at) {
    if (describes(at, "a whole number from 1 to `priority_levels`")) return;
    if (has_levels(at)) rules.default_priority_level = at.count(1, rules.priority_levels);
  };
  const auto level_policies = [&](const JsonCursor& at) {
    if (describes(at, "an object: for each level a policy with the keys of `default_policy`"))
      return;
    if (has_levels(at)) read_level_policies(at, rules);
  };
  ObjectReader(cursor)
      .optional("priority_levels", count(rules.priority_levels, 0, kMostPriorityLevels),
                "Levels 1 to N; 1 is the highest. 0: all requests have the same level.")
      .required("default_priority_level", default_level,
                "The level of a request without one. Only with `priority_levels`.")
      .optional("default_policy", into(rules.default_policy, read_queue_policy),
                "The policy of levels without one of their own.")
      .optional("level_policies", level_policies, "Those of some levels. Default: none.")
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
  if (describes(cursor, fmt::format("a whole number up to {}", kMostSlotBytes))) return;
  if (tensor.type != DataType::bytes) {
    cursor.fail("only a tensor of type BYTES has a limit of its own", "take it out");
    return;
  }
  const std::size_t least = element_count(tensor) * byte_size(DataType::bytes);
  tensor.max_bytes = cursor.count(static_cast<std::uint32_t>(least), kMostSlotBytes);
}

// Whose tensors they are. Other code reads the keys that only those of models have.
enum class Side : std::uint8_t { application, input, output };

TensorSpec read_tensor(const JsonCursor& cursor, Shapes shapes, Side side) {
  TensorSpec tensor;
  const auto read_name = [](const JsonCursor& at) {
    return at.text("the tensor's name in quotes");
  };
  const auto shape = [&](const JsonCursor& at) { read_shape(at, shapes, tensor); };
  const auto max_bytes = [&tensor, encoded = side == Side::input &&
                                             is_encoded(cursor)](const JsonCursor& at) {
    encoded ? read_encoded_bytes(at, tensor) : read_max_bytes(at, tensor);
  };
  ObjectReader reader(cursor);
  reader.required("name", into(tensor.name, read_name), "The name of the tensor for clients.")
      .required("type", into(tensor.type, read_type), "The type of its elements.")
      .required(
          "shape", shape,
          "Without the dimension of the batch. -1, of a model alone: a size that each request "
          "chooses.")
      .optional("max_bytes",
                Reader(max_bytes, fmt::format("{} for each string", kDefaultElementBytes)),
                "Of `BYTES`: the most bytes of one request, with 4 for the length of each string.");
  if (side == Side::output) {
    reader.optional("lengths", elsewhere(),
                    "Of a shape with -1: its size in each bucket, where that is not the length. "
                    "Such an output is not cut to the length of the request. Default: the length.");
  }
  if (side == Side::input) {
    reader
        .optional("format", elsewhere(),
                  "Of an input of three dimensions: the order of an image, for clients. Default: "
                  "none.")
        .optional("from", elsewhere(kAnObject),
                  "What clients send in place of an input of type FP32 or FP16, which the model's "
                  "process makes of it (docs/model-files.md, \"Images of bytes\"). Default: the "
                  "input itself.")
        .optional("range", elsewhere(),
                  "The least and the greatest value of requests with which the model is measured "
                  "(docs/model-files.md). Default: what the file says of a table that the input "
                  "indexes, or none.")
        .optional("default", elsewhere(),
                  "What an input has that a request leaves out: one number, or a list with one for "
                  "each element. Over HTTP and gRPC. Default: requests have to give the input.");
    add_encoded_keys(reader);
  }
  reader.read();
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
  const auto length = [&cell](const JsonCursor& at) {
    cell.length = at.integer(1, kLargestDimension);
  };
  ObjectReader(cursor)
      .required("batch", count(cell.batch, 1, kLargestBatch), "Requests in the batch.")
      .required("partition", share, "The share of the device, in percent.")
      .required("latency_ms", number(cell.latency_ms, above(0)), "The time of such a batch.")
      .optional("length", length,
                "The length of the bucket. Required for a model with dynamic dimensions; others "
                "have none.")
      .optional("p99_ms", number(cell.p99_ms, above(0)),
                "The 99th percentile of the latencies. Default: unknown.")
      .optional("cv", number(cell.cv, at_least(0)),
                "Their coefficient of variation. Default: unknown.")
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
      .required("cells", cells, "No batch, share and length twice.")
      .optional("memory_mb", number(measured.memory_mb, above(0)),
                "The memory of the model on such a device. Default: that of the profile.")
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
  if (describes(labels, "an object: for an output the path of a text file with one label a line"))
    return;
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
  if (const std::string text =
          cursor.type() == JsonCursor::Type::text ? cursor.text(kExpected) : std::string();
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

std::vector<TensorSpec> read_tensors(const JsonCursor& cursor, Shapes shapes, Side side) {
  constexpr auto kExpected = R"(a list like [{"name":"image","type":"FP32","shape":[3,224,224]}])";
  std::vector<TensorSpec> tensors =
      read_named(cursor.elements(kExpected, 1, kMostTensors), "tensor",
                 [&](const JsonCursor& element) { return read_tensor(element, shapes, side); });
  check_total(cursor, with_length(tensors, 1));
  return tensors;
}

std::vector<TensorSpec> read_outputs(const JsonCursor& cursor) {
  return read_tensors(cursor, Shapes::dynamic, Side::output);
}

// The key `lengths` of the outputs, whose other keys have been read.
void read_output_lengths(const JsonCursor& outputs, ModelConfig& model) {
  const std::vector<JsonCursor> elements = outputs.elements("outputs", 0, kMostTensors);
  for (std::size_t i = 0; i < std::min(elements.size(), model.outputs.size()); ++i) {
    const auto lengths = elements[i].find("lengths");
    if (!lengths || describes(*lengths, "a list with a size for each bucket: [4,8,16]")) continue;
    const TensorSpec& output = model.outputs[i];
    if (!model.dynamic || !is_dynamic(output)) {
      return lengths->fail("the output has no dimension of any size, or the model no buckets",
                           "take it out, or write -1 in the shape and \"pad\" or \"lengths\"");
    }
    const std::size_t count = model.dynamic->lengths.size();
    std::vector<std::int64_t> sizes;
    for (const JsonCursor& one :
         lengths->elements("a list with a size for each bucket: [4,8,16]", count, count))
      sizes.push_back(one.integer(1, kLargestDimension));
    if (!lengths->valid()) return;
    model.dynamic->output_lengths.emplace(output.name, std::move(sizes));
  }
}

void read_inputs(const JsonCursor& cursor, ModelConfig& model) {
  model.inputs = read_tensors(cursor, Shapes::dynamic, Side::input);
  read_formats(cursor, model);
  read_encoded_images(cursor, model);
  read_conversions(cursor, model);
  read_input_values(cursor.elements("inputs", 0, kMostTensors), model);
}

// ---- the batch

// Without one, the tensors are whole.
void read_max_batch(const JsonCursor& cursor, ModelConfig& model) {
  if (describes(cursor, fmt::format("a whole number from 0 to {}", kLargestBatch))) return;
  model.max_batch = cursor.count(0, kLargestBatch);
  if (!cursor.valid() || model.max_batch > 0) return;
  model.max_batch = 1;
  for (TensorSpec& input : model.inputs) {
    if (input.conversion || input.image) {
      return cursor.fail(fmt::format("input {} is made of an image, which has a batch in front",
                                     in_quotes(input.name)),
                         R"(set "max_batch" to 1, or take "from" or "encoded" out)");
    }
    input.whole = true;
  }
  for (TensorSpec& output : model.outputs) output.whole = true;
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
    }
    set_padding(value, inputs, name, padding);
  }
}

DynamicLength read_pad(const JsonCursor& cursor, const std::vector<TensorSpec>& inputs) {
  constexpr double kPadding = 0;
  DynamicLength dynamic;
  dynamic.padding.assign(inputs.size(), kPadding);
  const auto value = [&](const JsonCursor& at) { set_padding(at, inputs, {}, dynamic.padding); };
  const auto values = [&](const JsonCursor& at) { read_paddings(at, inputs, dynamic.padding); };
  const auto dimension = [&](const JsonCursor& at) { read_dimension(at, inputs); };
  ObjectReader(cursor)
      .required("buckets", into(dynamic.lengths, read_lengths),
                "The lengths to which requests are padded, the shortest first.")
      .optional("value", Reader(value, as_json(kPadding)),
                "The number that fills inputs up. FP16 and BF16 take 0 only.")
      .optional("values", values, "Other numbers for some inputs, by name. Default: none.")
      .optional("dim", dimension,
                "Where -1 is in the inputs, counted from 0. Only checked. Default: anywhere.")
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
    cursor.fail(R"("pad" has the lengths)", R"(take one of "pad" and "lengths" out)");
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
  for (const ModelConfig& bucket : buckets_of(model))
    check_total(cursor.required("outputs"), bucket.outputs);
}

}  // namespace

std::vector<TensorSpec> read_tensors(const JsonCursor& cursor) {
  return read_tensors(cursor, Shapes::fixed, Side::application);
}

ModelConfig read_model(const JsonCursor& cursor) {
  ModelConfig model;
  ObjectReader(cursor)
      .required("name", name(model.name),
                "The name for clients, unique among models and applications.")
      .required(
          "file", [&model](const JsonCursor& file) { read_file(file, model); },
          "An ONNX file, a TorchScript file or a package of AOTInductor. URLs: `http`, `https` and "
          "`s3` (docs/guide.md, \"Model files from a store\").")
      .optional(
          "sha256", [&model](const JsonCursor& digest) { read_digest(digest, model); },
          "Of a URL: the digest that the file must have. Default: any.")
      .required(
          "inputs", [&model](const JsonCursor& inputs) { read_inputs(inputs, model); },
          "Of TorchScript in the order of the arguments; of ONNX by the names in the file.")
      .required(
          "outputs", [&model](const JsonCursor& at) { model.outputs = read_outputs(at); },
          "The same of the results.")
      .optional(
          "pad", [&model](const JsonCursor& at) { model.dynamic = read_pad(at, model.inputs); },
          "Of a model with dynamic dimensions: how requests are padded (docs/model-files.md, "
          "\"Dynamic dimensions\").")
      .optional(
          "lengths", [&model](const JsonCursor& at) { read_exact_lengths(at, model); },
          "In place of `pad`: the lengths that requests have, exactly. Nothing is padded, and "
          "requests of other lengths are refused.")
      .required("slo_ms", number(model.slo_ms, above(0)),
                "The objective: the time from a request's arrival at the frontend to its answer.")
      .optional("rate", number(model.rate, at_least(0)),
                "Requests per second that the first plan expects. Later plans use the measured "
                "rate.")
      .optional(
          "max_batch",
          Reader([&model](const JsonCursor& at) { read_max_batch(at, model); },
                 as_json(model.max_batch)),
          "The largest batch that a plan may choose. 0: the model has no batch dimension, and "
          "shapes are those of whole tensors (docs/model-files.md, \"Without a batch "
          "dimension\").")
      .optional("memory_mb", number(model.memory_mb, above(0)),
                "The memory of the model on a device. Default: that of the profile.")
      .optional("precision", choice(model.numerics.precision, {"full", "half", "bfloat16"}),
                "The numbers in which a TorchScript model computes, where the device supports them "
                "(docs/gpu.md, \"In other numbers\").")
      .optional("memory_format",
                choice(model.numerics.channels_last, {"contiguous", "channels_last"}),
                "The order of its images in memory, where the device supports it.")
      .optional("largest_error", number(model.numerics.largest_error, between(0, 1)),
                "In other numbers: the difference of an output that is allowed, as a part of its "
                "largest magnitude.")
      .optional(
          "labels", [&model](const JsonCursor& labels) { read_labels(labels, model); },
          "The names of classes, for clients that ask for them. Default: none.")
      .optional("queue", into(model.queue, read_queue),
                "Priority levels and queue policies (docs/protocol.md, \"Priorities and queue "
                "policies\"). Default: requests are ordered by their deadlines.")
      .optional(
          "version", [&model](const JsonCursor& at) { read_version(at, model); },
          "The number under which clients find the version. Default: versions are counted.")
      .optional(
          "measured", [&model](const JsonCursor& at) { read_measured(at, model); },
          "By type of device: latencies in place of those of the profile. `gpulet models add` "
          "with `--print` writes them. Default: none.")
      .read();
  if (cursor.valid()) read_output_lengths(cursor.required("outputs"), model);
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
  const std::vector<std::int64_t>& lengths = model.dynamic->lengths;
  std::vector<ModelConfig> buckets;
  std::int64_t shorter = 0;
  for (std::size_t at = 0; at < lengths.size(); ++at) {
    const std::int64_t length = lengths[at];
    ModelConfig& one = buckets.emplace_back(model);
    one.name = bucket_name(model.name, length);
    one.inputs = with_length(model.inputs, length);
    one.rate =
        model.rate * static_cast<double>(length - shorter) / static_cast<double>(lengths.back());
    one.measured = measured_at(length, model);
    one.dynamic.reset();
    Bucket& bucket = one.bucket.emplace();
    bucket.model = model.name;
    bucket.length = length;
    bucket.inputs = model.inputs;
    for (const TensorSpec& output : model.outputs) {
      const auto sizes = model.dynamic->output_lengths.find(output.name);
      const bool own = sizes != model.dynamic->output_lengths.end() && sizes->second.size() > at;
      bucket.outputs.push_back(own ? with_length({output}, sizes->second[at]).front() : output);
    }
    one.outputs = with_length(bucket.outputs, length);
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
