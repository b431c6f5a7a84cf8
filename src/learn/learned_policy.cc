#include "gpulet/learn/learned_policy.h"

#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "gpulet/config/json.h"
#include "gpulet/core/sha256.h"
#include "gpulet/learn/files.h"

namespace gpulet::learn {
namespace {

using config::JsonCursor;
using nlohmann::ordered_json;
using schedule::Device;

constexpr std::string_view kFormat = "gpulet-policy 1\n";
constexpr std::size_t kFloatBytes = 4;
constexpr std::uint32_t kMostOfAnything = 100'000;  // layers' widths, devices, models, sizes
constexpr std::uint32_t kMostBatch = 1'000'000;
constexpr double kMostNumber = 1e12;

Status invalid(const std::string& file, const std::string& what) {
  return {StatusCode::invalid, file + ": " + what +
                                   "; it is no whole policy file as gpulet train writes it: copy "
                                   "it again, or train anew"};
}

// ---- writing

std::string bytes_of(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (unsigned byte = 0; byte < kFloatBytes; ++byte)
      bytes.push_back(static_cast<char>((bits >> (8 * byte)) & 0xffU));
  }
  return bytes;
}

ordered_json to_json(const Device& device) {
  ordered_json sizes = ordered_json::array();
  for (const Share size : device.sizes) sizes.push_back(size.percent);
  return {{"node", device.key.node},      {"device", device.key.device},
          {"type", device.type},          {"partitioning", device.partitioning},
          {"sizes", std::move(sizes)},    {"max_partitions", device.max_partitions},
          {"memory_mb", device.memory_mb}};
}

ordered_json to_json(const TaskModel& model) {
  return {{"name", model.name},
          {"slo_ms", model.slo_ms},
          {"max_batch", model.max_batch},
          {"highest_rate", model.highest_rate}};
}

// ---- reading

Device read_device(const JsonCursor& at) {
  at.allow_keys({"node", "device", "type", "partitioning", "sizes", "max_partitions", "memory_mb"});
  Device device;
  device.key = {at.required("node").name(), at.required("device").count(0, kMostOfAnything)};
  device.type = at.required("type").name();
  device.partitioning = at.required("partitioning").name();
  for (const JsonCursor& size : at.required("sizes").elements("a list of percents", 1, 100))
    device.sizes.push_back(Share{static_cast<int>(size.count(1, 100))});
  device.max_partitions = at.required("max_partitions").count(1, kMostOfAnything);
  device.memory_mb = at.required("memory_mb").number({.least = 0, .most = kMostNumber});
  return device;
}

TaskModel read_model(const JsonCursor& at) {
  at.allow_keys({"name", "slo_ms", "max_batch", "highest_rate"});
  return {at.required("name").name(),
          at.required("slo_ms").number({.least = 0, .most = kMostNumber}),
          at.required("max_batch").count(1, kMostBatch),
          at.required("highest_rate").number({.least = 0, .most = kMostNumber})};
}

PlacementTask read_task(const JsonCursor& root) {
  PlacementTask task;
  for (const JsonCursor& device :
       root.required("devices").elements("the devices", 1, kMostOfAnything))
    task.devices.push_back(read_device(device));
  for (const JsonCursor& model : root.required("models").elements("the models", 1, kMostOfAnything))
    task.models.push_back(read_model(model));
  return task;
}

std::vector<std::uint32_t> read_widths(const JsonCursor& root) {
  std::vector<std::uint32_t> widths;
  for (const JsonCursor& width :
       root.required("widths").elements("the layers' widths, from input to output", 2, 16))
    widths.push_back(width.count(1, kMostOfAnything));
  return widths;
}

std::vector<float> floats_of(std::string_view bytes) {
  std::vector<float> values(bytes.size() / kFloatBytes);
  for (std::size_t at = 0; at < values.size(); ++at) {
    std::uint32_t bits = 0;
    for (unsigned byte = 0; byte < kFloatBytes; ++byte) {
      const auto one = static_cast<unsigned char>(bytes[kFloatBytes * at + byte]);
      bits |= static_cast<std::uint32_t>(one) << (8 * byte);
    }
    values[at] = std::bit_cast<float>(bits);
  }
  return values;
}

Result<Network> read_network(const std::vector<std::uint32_t>& widths, std::string_view weights,
                             const std::string& sum, const std::string& file) {
  std::uint64_t floats = 0;
  for (std::size_t at = 0; at + 1 < widths.size(); ++at)
    floats += std::uint64_t{widths[at] + 1ULL} * widths[at + 1];
  if (weights.size() != kFloatBytes * floats) {
    return invalid(file, "its layers have " + std::to_string(kFloatBytes * floats) +
                             " bytes of weights, the file " + std::to_string(weights.size()));
  }
  if (sum != sha256_of(weights))
    return invalid(file, "its weights are not those it was written with");
  auto network = Network::create(widths, floats_of(weights));
  if (!network.ok()) return network.status().within(file);
  return network;
}

}  // namespace

std::string to_bytes(const LearnedPolicy& policy) {
  const std::string weights = bytes_of(policy.network.parameters());
  ordered_json devices = ordered_json::array();
  for (const Device& device : policy.task.devices) devices.push_back(to_json(device));
  ordered_json models = ordered_json::array();
  for (const TaskModel& model : policy.task.models) models.push_back(to_json(model));
  const ordered_json header{{"devices", std::move(devices)},
                            {"models", std::move(models)},
                            {"widths", policy.network.widths()},
                            {"training", policy.training},
                            {"sha256", sha256_of(weights)}};
  return std::string(kFormat) + header.dump() + '\n' + weights;
}

Result<LearnedPolicy> parse_policy(std::string_view bytes, const std::string& file_name) {
  if (!bytes.starts_with(kFormat)) return invalid(file_name, "it begins otherwise");
  bytes.remove_prefix(kFormat.size());
  const std::size_t end = bytes.find('\n');
  if (end == std::string_view::npos) return invalid(file_name, "it ends within its header");
  const auto document = JsonCursor::parse(bytes.substr(0, end), file_name);
  if (!document.ok()) return document.status();
  bytes.remove_prefix(end + 1);

  const JsonCursor& root = document.value();
  root.allow_keys({"devices", "models", "widths", "training", "sha256"});
  PlacementTask task = read_task(root);
  const std::vector<std::uint32_t> widths = read_widths(root);
  std::map<std::string, std::string> training;
  for (const auto& [key, text] : root.required("training").members())
    training.emplace(key, text.text("what is to be known of the training"));
  const std::string sum = root.required("sha256").name();
  if (Status status = root.status(); !status.ok()) return status;
  const std::size_t outputs = task.models.size() * task.places();
  if (widths.front() != task.observation_size() || widths.back() != outputs) {
    return invalid(file_name, "its network sees " + std::to_string(widths.front()) +
                                  " numbers and chooses among " + std::to_string(widths.back()) +
                                  " where its task has " + std::to_string(task.observation_size()) +
                                  " and " + std::to_string(outputs));
  }
  auto network = read_network(widths, bytes, sum, file_name);
  if (!network.ok()) return network.status();
  return LearnedPolicy{std::move(task), std::move(network).value(), std::move(training)};
}

Status write_policy(const LearnedPolicy& policy, const std::filesystem::path& file) {
  return write_file(file, to_bytes(policy));
}

Result<LearnedPolicy> read_policy(const std::filesystem::path& file) {
  const auto bytes = read_file(file);
  if (!bytes.ok()) {
    return Status(StatusCode::not_found,
                  bytes.status().message() + "; gpulet train writes policy files");
  }
  return parse_policy(bytes.value(), file.string());
}

}  // namespace gpulet::learn
