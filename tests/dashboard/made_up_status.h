// A cluster that is made up: as many devices and models as asked for, under a load that goes up and
// down, with what a test wants to see on the page.
#pragma once

#include <cmath>
#include <memory>
#include <set>
#include <string>

#include "gpulet/core/time.h"
#include "gpulet/serve/frontend_core.h"
#include "tests/dashboard/made_up_control.h"

namespace gpulet::testing {

class MadeUpCluster {
 public:
  MadeUpCluster(std::uint32_t devices, std::uint32_t models) : devices_(devices), models_(models) {}

  // What has happened until `now`, a time after the last call's.
  [[nodiscard]] serve::FrontendStatus status(Time now) {
    serve::FrontendStatus status;
    status.state = draining ? "draining" : "serving";
    status.policy = "elastic";
    status.epoch = Epoch{epoch_};
    status.reorganisations = reorganisations_;
    status.events = events_;
    status.plans = plans_;
    for (std::uint32_t i = 0; i < models_; ++i) status.models.push_back(model(i, now));
    const std::uint32_t per_node = controlled ? kPerControlledNode : kPerNode;
    for (std::uint32_t node = 0; node * per_node < devices_; ++node)
      add_node(status, node, per_node);
    if (controlled) control_.take_over(status, now);
    last_ = now;
    return status;
  }

  void reorganise(Time now) {
    ++epoch_;
    ++reorganisations_.plans;
    serve::PlanDecision decision;
    decision.number = epoch_;
    decision.decided = now - std::chrono::milliseconds(120);
    decision.summary = "plans another division: more is asked of model-0";
    decision.plan.policy = "elastic";
    decision.plan.notes = {"the first attempt served everything"};
    decision.plan.unserved = {{"model-1", 5, "the devices are full"}};
    decision.plan.gpulets = {{{"node-00", 0}, Share{40}, 12.5, {{"model-0", 20, 8, 6.1, 1, 40}}}};
    decision.created = {true};
    decision.explanation.gpulets = {"40 % is the smallest size that serves 20 requests/s."};
    plans_.push_back({std::make_shared<const serve::PlanDecision>(std::move(decision)),
                      Epoch{epoch_}, now, std::chrono::milliseconds(120)});
    events_.push_back({now, "epoch " + std::to_string(epoch_) + " serves"});
    events_.back().kind = serve::StatusEvent::Kind::reorganisation;
    events_.back().plan = epoch_;
  }
  void warn(Time now, std::string text, std::uint64_t times = 1) {
    events_.push_back({now, std::move(text), true});
    events_.back().count = times;
  }

  double load = 1;            // multiplies every rate
  double violated = 0;        // part of the requests
  bool only_dropped = false;  // what is served is in time
  bool full = false;          // what is violated has no place in the plan
  bool draining = false;
  bool controlled = false;            // by the policy roma, on small nodes
  bool a_gpulet_failed = false;       // the first
  std::set<std::string> unavailable;  // models

 private:
  static constexpr std::uint32_t kPerNode = 8;
  static constexpr std::uint32_t kPerControlledNode = 2;

  [[nodiscard]] static std::string name_of(std::uint32_t model) {
    return "model-" + std::to_string(model);
  }
  [[nodiscard]] static double rate_of(std::uint32_t model) { return 20.0 + 7.0 * (model % 13); }

  serve::ModelStatus model(std::uint32_t index, Time now) {
    serve::ModelStatus one;
    one.name = name_of(index);
    one.version = "3f5c0a9b12de";
    one.slo_ms = 40.0 + 10.0 * (index % 5);
    const bool gone = unavailable.contains(one.name);
    one.state = gone ? serve::ModelState::unavailable : serve::ModelState::ready;
    if (gone) one.reason = "no device has memory for it";
    const double seconds = to_seconds(now - Time());
    const double wave = 1 + 0.3 * std::sin(seconds / 30 + index);
    one.rate_planned = rate_of(index) * 1.4;
    one.rate_seen = rate_of(index) * load * wave;
    const double came = last_ == Time() ? 0 : one.rate_seen * to_seconds(now - last_);
    serve::ModelCounters& counted = counters_[index];
    counted.offered += static_cast<std::uint64_t>(came);
    const auto dropped = static_cast<std::uint64_t>(came * violated);
    counted.dropped += dropped;
    counted.served += static_cast<std::uint64_t>(came) - dropped;
    one.counters = counted;
    one.p50_ms = one.slo_ms * 0.4;
    one.p99_ms = one.slo_ms * (violated > 0 && !only_dropped ? 1.2 : 0.8);
    const auto part = [this](double requests) {
      return serve::Outcomes{static_cast<std::uint64_t>(requests), 0,
                             static_cast<std::uint64_t>(requests * violated), 0};
    };
    one.last_minute = part(6000);
    one.latest = part(1500);
    one.pace = 0.95;
    if (full) {
      one.rate_unserved = one.rate_planned * violated;
      one.missing =
          schedule::MissingPlace{one.name, one.rate_unserved, schedule::Lack::devices, 1.4};
    }
    return one;
  }

  void add_node(serve::FrontendStatus& status, std::uint32_t node, std::uint32_t per_node) {
    serve::FleetBackend backend;
    const BackendId id{node + 1};
    const std::string number = std::to_string(node);
    backend.node = "node-" + std::string(number.size() < 2 ? "0" : "") + number;
    for (std::uint32_t i = 0; i < per_node && node * per_node + i < devices_; ++i) {
      serve::DeviceOffer offer;
      offer.device.key = {backend.node, i};
      offer.device.type = "card";
      offer.device.memory_mb = 16384;
      offer.mechanism = "simulated";
      status.devices.push_back({offer.device.key, "card", Share{100}, 0.5, 16384, 4000});
      add_gpulets(status, id, offer.device.key, node * per_node + i);
      backend.devices.push_back(std::move(offer));
    }
    status.backends[id] = std::move(backend);
  }

  // Three of 40, 40 and 20 %, the last shared by two models; a new plan moves the models on by one.
  void add_gpulets(serve::FrontendStatus& status, BackendId backend,
                   const schedule::DeviceKey& device, std::uint32_t index) const {
    std::uint32_t next = index * 4 + static_cast<std::uint32_t>(epoch_);
    for (std::uint32_t i = 0; i < 3; ++i) {
      serve::GpuletStatus one;
      one.id = GpuletId{index * 3 + i + 1};
      one.gpulet.backend = backend;
      one.gpulet.device = device;
      one.gpulet.size = Share{i == 2 ? 20 : 40};
      one.gpulet.state = serve::GpuletState::ready;
      one.planned = schedule::PlannedGpulet{device, one.gpulet.size, 12.5, {}};
      for (std::uint32_t taken = 0; taken < (i == 2 ? 2U : 1U); ++taken, ++next) {
        const std::uint32_t model = next % models_;
        one.gpulet.models.push_back({name_of(model), 8});
        one.planned->assignments.push_back({name_of(model), rate_of(model), 8, 6.1, 1, 50});
      }
      if (index == 0 && i == 0 && a_gpulet_failed) {
        one.gpulet.state = serve::GpuletState::failed;
        one.gpulet.status = Status(StatusCode::internal, "the file of model-1 is no TorchScript");
      }
      one.busy = 0.2 + 0.1 * ((index + i) % 7);
      status.gpulets.push_back(std::move(one));
    }
  }

  std::uint32_t devices_;
  std::uint32_t models_;
  std::uint64_t epoch_ = 1;
  serve::ReorganisationCounters reorganisations_;
  std::deque<serve::StatusEvent> events_;
  std::deque<serve::PlanInForce> plans_;
  std::map<std::uint32_t, serve::ModelCounters> counters_;
  MadeUpControl control_;
  Time last_{};
};

}  // namespace gpulet::testing
