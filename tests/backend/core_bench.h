// A BackendCore with a settable clock, and helpers to send it events.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/node/backend_core.h"

namespace gpulet::node {

inline constexpr std::size_t kInputBytes = 4;  // per request
inline constexpr std::uint32_t kMaxBatch = 8;

inline ModelToServe model(const std::string& name) {
  const TensorSpec tensor{"x", DataType::fp32, {1}};
  return {name, "sha-" + name, {tensor}, {tensor}, kMaxBatch};
}

inline CreateGpulet create(std::uint64_t id, const std::vector<std::string>& models,
                           std::uint32_t device = 0) {
  CreateGpulet request{{id}, device, {40}, {}};
  for (const auto& name : models) request.models.push_back(model(name));
  return request;
}

inline Batch batch(std::uint64_t id, std::uint64_t gpulet, const std::string& model_name = "a",
                   std::uint32_t count = 2) {
  Batch made;
  made.id = {id};
  made.gpulet = {gpulet};
  made.model = model_name;
  made.count = count;
  made.start_within = std::chrono::milliseconds(50);
  made.expected_duration = std::chrono::milliseconds(5);
  made.inputs = {Bytes::own(std::vector<std::byte>(count * kInputBytes))};
  return made;
}

inline DeviceOffer device(std::uint32_t number, const std::string& partitioning) {
  DeviceOffer offer;
  offer.device.key = {"n0", number};
  offer.device.type = "type";
  offer.device.partitioning = partitioning;
  return offer;
}

inline constexpr std::uint32_t kSharedFate = 3;  // the device whose faults affect all its gpulets

class CoreBench {
 public:
  explicit CoreBench(BackendCoreOptions options = {}) : core_(with_devices(std::move(options))) {}

  BackendEffects on(BackendEvent event) {
    BackendEffects effects;
    core_.on(std::move(event), now_, effects);
    return effects;
  }
  // A command of the frontend that connect() connects, or of one that sends no heartbeats.
  BackendEffects command(FrontendCommand command) {
    if (!connected_) {
      connected_ = {++connections_};
      on(FrontendConnected{*connected_});
      on(CommandReceived{*connected_, Welcome{std::chrono::hours(1)}});
    }
    return on(CommandReceived{*connected_, std::move(command)});
  }
  void pass(Duration duration) { now_ += duration; }
  // Advances to the core's next wake-up.
  BackendEffects wake() {
    now_ = std::max(now_, core_.next_wakeup());
    return on(TimePassed{});
  }

  [[nodiscard]] BackendCore& core() { return core_; }
  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] std::optional<GpuletPhase> phase(std::uint64_t gpulet) const {
    return core_.phase_of({gpulet});
  }

  // Shuts down with a frontend that does not react until the timeout.
  BackendEffects shut_down_without_reaction() {
    on(ShutDown{});
    pass(BackendCoreOptions().drain_timeout);
    return on(TimePassed{});
  }

  BackendEffects connect() {
    if (connected_) disconnect();
    connected_ = {++connections_};
    auto effects = on(FrontendConnected{*connected_});
    const auto welcomed = command(Welcome{std::chrono::seconds(1)});
    effects.insert(effects.end(), welcomed.begin(), welcomed.end());
    return effects;
  }
  BackendEffects disconnect() {
    return on(FrontendDisconnected{*std::exchange(connected_, std::nullopt)});
  }
  [[nodiscard]] bool takes_batches(std::uint64_t gpulet) const {
    return connected_ && core_.takes_batches(*connected_, {gpulet});
  }
  // Requests a gpulet of model "a", whose file is stored.
  BackendEffects ask(std::uint64_t gpulet, std::uint32_t of_device = 0) {
    return command(GpuletRequested{create(gpulet, {"a"}, of_device), {{"sha-a", "/store/a.pt"}}});
  }
  void make_ready(std::uint64_t gpulet, std::uint32_t of_device = 0) {
    ask(gpulet, of_device);
    load(gpulet);
  }
  void load(std::uint64_t gpulet) {
    on(ProxyStarted{{gpulet}});
    on(ProxyLoaded{{gpulet}, {}});
    on(ShareActive{{gpulet}, {}});
  }
  BackendEffects arrive(Batch arrived, bool placed = true) {
    return command(BatchArrived{std::move(arrived), now_, placed});
  }
  BackendEffects ran(std::uint64_t gpulet, std::uint64_t batch_id) {
    return on(BatchCompleted{{gpulet}, {{batch_id}, {}, 8, Duration(100), Duration(200)}, Bytes()});
  }
  BackendEffects end(std::uint64_t gpulet,
                     Status reason = {StatusCode::unavailable, "killed by signal 9"}) {
    return on(ProxyEnded{{gpulet}, std::move(reason)});
  }

 private:
  static BackendCoreOptions with_devices(BackendCoreOptions options) {
    options.node = "n0";
    if (!options.devices.empty()) return options;
    options.devices = {device(0, "cpu_quota"), device(1, "cpu_quota"), device(2, "simulated"),
                       device(kSharedFate, "mps")};
    options.devices[0].device.cores = 2;
    options.devices[kSharedFate].traits.fault = partition::FaultReach::device;
    return options;
  }

  BackendCore core_;
  std::optional<FrontendId> connected_;
  std::uint64_t connections_ = 0;
  Time now_ = Time(std::chrono::hours(1));
};

// The effects of one kind.
template <typename Effect>
std::vector<Effect> all(const BackendEffects& effects) {
  std::vector<Effect> found;
  for (const auto& effect : effects) {
    if (const auto* one = std::get_if<Effect>(&effect)) found.push_back(*one);
  }
  return found;
}

// The messages of one kind to the frontend.
template <typename Message>
std::vector<Message> sent(const BackendEffects& effects) {
  std::vector<Message> found;
  for (const auto& tell : all<SendToFrontend>(effects)) {
    if (const auto* one = std::get_if<Message>(&tell.message)) found.push_back(*one);
  }
  return found;
}

}  // namespace gpulet::node
