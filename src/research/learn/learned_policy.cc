#include "research/learn/learned_policy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "gpulet/base/files.h"
#include "gpulet/base/sha256.h"
#include "gpulet/config/readers.h"
#include "gpulet/schedule/check.h"
#include "research/batch_search.h"
#include "research/policies.h"

namespace gpulet::learn {

namespace {

Status write_durably(int descriptor, std::string_view content) {
  // Without fsync, the renamed file could be empty after a crash.
  if (write_all(descriptor, content) && ::fsync(descriptor) == 0) return {};
  return {StatusCode::internal, std::generic_category().message(errno)};
}

}  // namespace

Status write_file(const std::filesystem::path& file, std::string_view content) {
  std::filesystem::path staged = file;
  staged += ".new";
  const int descriptor =
      ::open(staged.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);  // NOLINT(*-vararg)
  if (descriptor < 0) {
    return {StatusCode::internal, fmt::format("{}: cannot be written: {}", staged.string(),
                                              std::generic_category().message(errno))};
  }
  Status status = write_durably(descriptor, content);
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
using schedule::Plan;
using schedule::PlanInput;

constexpr std::string_view kFormat = "gpulet-policy 1\n";
constexpr std::size_t kFloatBytes = 4;
constexpr std::uint32_t kMaxCount = 100'000;  // of widths, devices, models
constexpr std::uint32_t kMaxBatch = 1'000'000;
constexpr config::NumberRange kNumbers = config::between(0, 1e12);

Status invalid(const std::string& file, const std::string& what) {
  return {
      StatusCode::invalid,
      fmt::format("{}: {}; this is not a complete policy file of gpulet train: copy it again, or "
                  "train a new policy",
                  file, what)};
}

static_assert(std::endian::native == std::endian::little);  // as in the file

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), kFloatBytes * values.size()};
}

std::vector<float> floats_of(std::string_view bytes) {
  std::vector<float> values(bytes.size() / kFloatBytes);
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), kFloatBytes * values.size());
  return values;
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
  device.memory_mb = at.required("memory_mb").number(kNumbers);
  return device;
}

TaskModel read_model(const JsonCursor& at) {
  at.allow_keys({"name", "slo_ms", "max_batch", "highest_rate"});
  return {at.required("name").name(), at.required("slo_ms").number(kNumbers),
          at.required("max_batch").count(1, kMaxBatch),
          at.required("highest_rate").number(kNumbers)};
}

PlacementTask read_task(const JsonCursor& root) {
  PlacementTask task;
  for (const JsonCursor& device : root.required("devices").elements("the devices", 1, kMaxCount))
    task.devices.push_back(read_device(device));
  for (const JsonCursor& model : root.required("models").elements("the models", 1, kMaxCount))
    task.models.push_back(read_model(model));
  return task;
}

Result<Network> read_network(const std::vector<std::uint32_t>& widths, std::string_view weights,
                             const std::string& sum, const std::string& file) {
  std::uint64_t floats = 0;
  for (std::size_t at = 0; at + 1 < widths.size(); ++at)
    floats += std::uint64_t{widths[at] + 1ULL} * widths[at + 1];
  if (weights.size() != kFloatBytes * floats) {
    return invalid(file, fmt::format("its layers need {} bytes of weights; it has {}",
                                     kFloatBytes * floats, weights.size()));
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
  GPULET_TRY(const auto document, JsonCursor::parse(bytes.substr(0, end), file_name));
  bytes.remove_prefix(end + 1);

  const JsonCursor& root = document;
  root.allow_keys({"devices", "models", "widths", "training", "sha256"});
  PlacementTask task = read_task(root);
  std::vector<std::uint32_t> widths;
  for (const JsonCursor& width :
       root.required("widths").elements("the layers' widths, from input to output", 2, 16))
    widths.push_back(width.count(1, kMaxCount));
  std::map<std::string, std::string> training;
  for (const auto& [key, text] : root.required("training").members())
    training.emplace(key, text.text("a text about the training"));
  const std::string sum = root.required("sha256").name();
  if (Status status = root.status(); !status.ok()) return status;
  const std::size_t outputs = task.models.size() * task.places();
  if (widths.front() != task.observation_size() || widths.back() != outputs) {
    return invalid(file_name,
                   fmt::format("its network has {} inputs and {} outputs; its task needs {} and {}",
                               widths.front(), widths.back(), task.observation_size(), outputs));
  }
  GPULET_TRY(auto network, read_network(widths, bytes, sum, file_name));
  return LearnedPolicy{std::move(task), std::move(network), std::move(training)};
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

constexpr std::string_view kName = research::kInss;
constexpr std::string_view kFallbackName = "cover";

class InssPolicy final : public schedule::Policy {
 public:
  explicit InssPolicy(LearnedPolicy learned)
      : learned_(std::move(learned)), fallback_(schedule::make_policy(kFallbackName).value()) {}

  [[nodiscard]] std::string_view name() const override { return kName; }
  [[nodiscard]] Status fits(const PlanInput& input) const override {
    return learn::fits(learned_.task, input);
  }

  [[nodiscard]] Plan plan(const PlanInput& input) const override {
    if (Status fit = learn::fits(learned_.task, input); !fit.ok())
      return fall_back(input, fit.message());
    std::optional<Plan> kept = research::keep_placement(input);
    Plan plan = kept ? *std::move(kept) : place(input);
    plan.policy = kName;
    const std::vector<schedule::Violation> faults = schedule::check(plan, input);
    if (!faults.empty())
      return fall_back(input, "its plan broke a rule: " + to_string(faults.front()));
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
    return research::BatchSearch(input).decide(rules.placements_of(choices.chosen));
  }

  [[nodiscard]] Plan fall_back(const PlanInput& input, const std::string& why) const {
    Plan plan = fallback_->plan(input);
    plan.policy = kName;
    plan.notes.insert(plan.notes.begin(),
                      fmt::format("made by {} instead: {}", kFallbackName, why));
    return plan;
  }

  LearnedPolicy learned_;
  std::unique_ptr<schedule::Policy> fallback_;
};

}  // namespace

std::unique_ptr<schedule::Policy> make_inss_policy(LearnedPolicy learned) {
  return std::make_unique<InssPolicy>(std::move(learned));
}

Result<std::unique_ptr<schedule::Policy>> read_inss_policy(const std::filesystem::path& file) {
  if (file.empty()) {
    return Status(StatusCode::invalid,
                  "the policy inss needs the file that gpulet train wrote: inss:FILE");
  }
  GPULET_TRY(auto learned, read_policy(file));
  return make_inss_policy(std::move(learned));
}

}  // namespace gpulet::learn
