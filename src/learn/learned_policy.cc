#include "gpulet/learn/learned_policy.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gpulet/base/sha256.h"
#include "gpulet/config/readers.h"
#include "gpulet/schedule/batch_search.h"
#include "gpulet/schedule/check.h"

namespace gpulet::learn {

namespace {

Status write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return {StatusCode::internal, std::generic_category().message(errno)};
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  // Without fsync, the renamed file could be empty after a crash.
  if (::fsync(descriptor) != 0)
    return {StatusCode::internal, std::generic_category().message(errno)};
  return {};
}

}  // namespace

Status write_file(const std::filesystem::path& file, std::string_view content) {
  std::filesystem::path staged = file;
  staged += ".new";
  const int descriptor =
      ::open(staged.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);  // NOLINT(*-vararg)
  if (descriptor < 0) {
    return {StatusCode::internal,
            staged.string() + ": cannot be written: " + std::generic_category().message(errno)};
  }
  Status status = write_all(descriptor, content);
  ::close(descriptor);
  std::error_code error;
  if (status.ok()) {
    std::filesystem::rename(staged, file, error);
    if (!error) return {};
    status = {StatusCode::internal, error.message()};
  }
  std::error_code ignored;
  std::filesystem::remove(staged, ignored);
  return status.within(file.string() + ": cannot be written");
}

Result<std::string> read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  if (!in || !content) return Status(StatusCode::not_found, file.string() + ": cannot be read");
  return std::move(content).str();
}

namespace {

using config::JsonCursor;
using nlohmann::ordered_json;
using schedule::Device;

constexpr std::string_view kFormat = "gpulet-policy 1\n";
constexpr std::size_t kFloatBytes = 4;
constexpr std::uint32_t kMaxCount = 100'000;  // of widths, devices, models
constexpr std::uint32_t kMaxBatch = 1'000'000;
constexpr double kMaxNumber = 1e12;

Status invalid(const std::string& file, const std::string& what) {
  return {StatusCode::invalid, file + ": " + what +
                                   "; this is not a complete policy file of gpulet train: copy "
                                   "it again, or train a new policy"};
}

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

Device read_device(const JsonCursor& at) {
  at.allow_keys({"node", "device", "type", "partitioning", "sizes", "max_partitions", "memory_mb"});
  Device device;
  device.key = {at.required("node").name(), at.required("device").count(0, kMaxCount)};
  device.type = at.required("type").name();
  device.partitioning = at.required("partitioning").name();
  for (const JsonCursor& size : at.required("sizes").elements("a list of percents", 1, 100))
    device.sizes.push_back(Share{static_cast<int>(size.count(1, 100))});
  device.max_partitions = at.required("max_partitions").count(1, kMaxCount);
  device.memory_mb = at.required("memory_mb").number({.least = 0, .most = kMaxNumber});
  return device;
}

TaskModel read_model(const JsonCursor& at) {
  at.allow_keys({"name", "slo_ms", "max_batch", "highest_rate"});
  return {at.required("name").name(),
          at.required("slo_ms").number({.least = 0, .most = kMaxNumber}),
          at.required("max_batch").count(1, kMaxBatch),
          at.required("highest_rate").number({.least = 0, .most = kMaxNumber})};
}

PlacementTask read_task(const JsonCursor& root) {
  PlacementTask task;
  for (const JsonCursor& device : root.required("devices").elements("the devices", 1, kMaxCount))
    task.devices.push_back(read_device(device));
  for (const JsonCursor& model : root.required("models").elements("the models", 1, kMaxCount))
    task.models.push_back(read_model(model));
  return task;
}

std::vector<std::uint32_t> read_widths(const JsonCursor& root) {
  std::vector<std::uint32_t> widths;
  for (const JsonCursor& width :
       root.required("widths").elements("the layers' widths, from input to output", 2, 16))
    widths.push_back(width.count(1, kMaxCount));
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
    return invalid(file, "its layers need " + std::to_string(kFloatBytes * floats) +
                             " bytes of weights; it has " + std::to_string(weights.size()));
  }
  if (sum != sha256_of(weights)) return invalid(file, "the SHA-256 of its weights differs");
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
  if (!bytes.starts_with(kFormat)) return invalid(file_name, "its first line is not the format's");
  bytes.remove_prefix(kFormat.size());
  const std::size_t end = bytes.find('\n');
  if (end == std::string_view::npos) return invalid(file_name, "it ends in the header");
  const auto document = JsonCursor::parse(bytes.substr(0, end), file_name);
  if (!document.ok()) return document.status();
  bytes.remove_prefix(end + 1);

  const JsonCursor& root = document.value();
  root.allow_keys({"devices", "models", "widths", "training", "sha256"});
  PlacementTask task = read_task(root);
  const std::vector<std::uint32_t> widths = read_widths(root);
  std::map<std::string, std::string> training;
  for (const auto& [key, text] : root.required("training").members())
    training.emplace(key, text.text("a text about the training"));
  const std::string sum = root.required("sha256").name();
  if (Status status = root.status(); !status.ok()) return status;
  const std::size_t outputs = task.models.size() * task.places();
  if (widths.front() != task.observation_size() || widths.back() != outputs) {
    return invalid(file_name, "its network has " + std::to_string(widths.front()) + " inputs and " +
                                  std::to_string(widths.back()) + " outputs; its task needs " +
                                  std::to_string(task.observation_size()) + " and " +
                                  std::to_string(outputs));
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

namespace {

using schedule::Plan;
using schedule::PlanInput;

constexpr std::string_view kName = "inss";
constexpr std::string_view kFallbackName = "cover";

class InssPolicy final : public schedule::Policy {
 public:
  explicit InssPolicy(LearnedPolicy learned)
      : learned_(std::move(learned)), fallback_(schedule::make_policy(kFallbackName).value()) {}

  [[nodiscard]] std::string_view name() const override { return kName; }
  [[nodiscard]] const PlacementTask& task() const { return learned_.task; }

  [[nodiscard]] Plan plan(const PlanInput& input) const override {
    if (Status fit = learn::fits(learned_.task, input); !fit.ok())
      return fall_back(input, fit.message());
    std::optional<Plan> kept = schedule::keep_placement(input);
    Plan plan = kept ? *std::move(kept) : place(input);
    plan.policy = kName;
    const std::vector<std::string> faults = schedule::check(plan, input);
    if (!faults.empty()) return fall_back(input, "its plan broke a rule: " + faults.front());
    return plan;
  }

 private:
  [[nodiscard]] Plan place(const PlanInput& input) const {
    const std::vector<float> seen = observe(learned_.task, input);
    std::vector<float> logits(learned_.network.outputs());
    Network::Scratch scratch;
    learned_.network.forward(seen, logits, scratch);
    const PlacementRules rules(learned_.task, input);
    const Choices choices = choose_best(seen, logits, rules);
    return schedule::BatchSearch(input).decide(rules.placements_of(choices.chosen));
  }

  [[nodiscard]] Plan fall_back(const PlanInput& input, const std::string& why) const {
    Plan plan = fallback_->plan(input);
    plan.policy = kName;
    plan.notes.insert(plan.notes.begin(),
                      "made by " + std::string(kFallbackName) + " instead: " + why);
    return plan;
  }

  LearnedPolicy learned_;
  std::unique_ptr<schedule::Policy> fallback_;
};

}  // namespace

std::unique_ptr<schedule::Policy> make_inss_policy(LearnedPolicy learned) {
  return std::make_unique<InssPolicy>(std::move(learned));
}

Status fits(const schedule::Policy& policy, const PlanInput& input) {
  const auto* const learned = dynamic_cast<const InssPolicy*>(&policy);
  return learned == nullptr ? Status{} : fits(learned->task(), input);
}

Result<std::unique_ptr<schedule::Policy>> make_policy(std::string_view name,
                                                      const std::filesystem::path& folder) {
  if (name == kName) {
    return Status(StatusCode::invalid,
                  "the policy inss needs the file that gpulet train wrote: inss:FILE");
  }
  const std::string prefix = std::string(kName) + ':';
  if (!name.starts_with(prefix)) {
    auto made = schedule::make_policy(name);
    if (made.ok()) return made;
    return Status(made.status().code(), made.status().message() + ", or inss:FILE");
  }
  auto learned = read_policy(folder / name.substr(prefix.size()));
  if (!learned.ok()) return learned.status();
  return make_inss_policy(std::move(learned).value());
}

}  // namespace gpulet::learn
