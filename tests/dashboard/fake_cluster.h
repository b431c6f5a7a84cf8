// FakeCluster: the status of a cluster with a given number of devices and models, under a load that
// goes up and down, with the problems that a test sets.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::testing {

// The control part of a FakeCluster: on each node, the last device is a CPU of six cores with one
// instance for each model, and each other device has one instance for all models. Cores follow the
// load with a delay of a few seconds, and too few cores increase response times.
class FakeControl {
 public:
  // Turns the last device of each node into a CPU with instances. REQUIRES: a node and a model.
  void apply(serve::FrontendStatus& status, Time now) {
    const double seconds = last_ == Time() ? 0 : to_seconds(now - last_);
    last_ = now;
    status.policy = "roma";
    const auto nodes = static_cast<double>(status.backends.size());
    double requested = 0;
    for (serve::ModelStatus& model : status.models) requested += update_demand(model, seconds, now);
    const double contention = requested > 0 ? kNodeCores * nodes / requested : 0;
    for (serve::ModelStatus& model : status.models) grant_cores(model, contention, seconds);
    status.gpulets.clear();
    for (auto& [id, backend] : status.backends) {
      status.controlled_nodes.push_back(
          {backend.devices.back().device.key, kNodeCores, requested / nodes,
           requested / nodes * std::min(1.0, contention), contention});
      for (DeviceOffer& offer : backend.devices) {
        const bool is_cpu = &offer == &backend.devices.back();
        if (is_cpu) make_cpu(offer);
        add_instances(status, id, offer.device, is_cpu);
      }
    }
    for (serve::DeviceStatus& device : status.devices) {
      if (is_cpu(status, device.key)) device.type = "cpu-core";
    }
  }

 private:
  static constexpr double kNodeCores = 6;
  static constexpr double kSetPoint = 0.8;  // of the objective
  static constexpr double kCoreSecondsPerRequest = 0.12;
  static constexpr double kAdaptation = 0.35;  // part of the difference, each period

  struct ControlledModel {
    double requested = 1;
    double needed = 1;
    double gpu_part = 0;
    serve::ModelControlStatus status;
  };

  double update_demand(const serve::ModelStatus& status, double seconds, Time now) {
    ControlledModel& model = models_[status.name];
    const double phase = to_seconds(now - Time()) / 20 + status.slo_ms;
    model.gpu_part = 0.55 + 0.15 * std::sin(phase);
    const double on_cpu = status.rate_seen * (1 - model.gpu_part);
    model.needed = on_cpu * kCoreSecondsPerRequest * (1 + 0.08 * std::sin(9 * phase));
    model.requested =
        std::max(0.1, model.requested + kAdaptation * (model.needed - model.requested));
    const double answered = status.rate_seen * seconds;
    model.status.on_gpu += static_cast<std::uint64_t>(answered * model.gpu_part);
    model.status.on_cpu += static_cast<std::uint64_t>(answered * (1 - model.gpu_part));
    return model.requested;
  }

  void grant_cores(serve::ModelStatus& status, double contention, double seconds) {
    ControlledModel& model = models_[status.name];
    const double granted = model.requested * std::min(1.0, contention);
    serve::ModelControlStatus& control = model.status;
    control.set_point_ms = kSetPoint * status.slo_ms;
    control.response_ms =
        control.set_point_ms * std::min(4.0, std::pow(model.needed / granted, 1.4));
    control.gpu_part = model.gpu_part;
    control.cores_requested = model.requested;
    control.cores_granted = granted;
    ++control.periods;
    if (control.response_ms > status.slo_ms) ++control.violated_periods;
    control.core_seconds += granted * seconds;
    status.rate_planned = 0;
    status.p50_ms = 0.9 * control.response_ms;
    status.p99_ms = 1.6 * control.response_ms;
    status.control = control;
  }

  static void make_cpu(DeviceOffer& offer) {
    offer.device.type = "cpu-core";
    offer.device.partitioning = "cpu_quota";
    offer.device.cores = kNodeCores;
    offer.mechanism = "cgroup v2";
  }

  static bool is_cpu(const serve::FrontendStatus& status, const schedule::DeviceKey& key) {
    return std::any_of(status.backends.begin(), status.backends.end(), [&key](const auto& entry) {
      return entry.second.devices.back().device.key == key;
    });
  }

  void add_instances(serve::FrontendStatus& status, BackendId backend,
                     const schedule::Device& device, bool on_cpu) const {
    std::vector<schedule::Assignment> all;
    for (const serve::ModelStatus& model : status.models)
      all.push_back({model.name, 0, 1, 0.3 * model.slo_ms, 1, model.slo_ms});
    const std::size_t count = on_cpu ? all.size() : 1;
    for (std::size_t i = 0; i < count; ++i) {
      serve::GpuletStatus one;
      one.id = GpuletId{status.gpulets.size() + 1};
      one.gpulet.backend = backend;
      one.gpulet.device = device.key;
      one.gpulet.size = Share{on_cpu ? 1 : 100};
      one.gpulet.state = GpuletState::ready;
      one.planned = schedule::PlannedGpulet{device.key, one.gpulet.size, 0, all, {}};
      one.planned->service = schedule::Service::by_need;
      one.busy = 0.9;
      if (on_cpu) {
        const serve::ModelControlStatus& control = models_.at(all[i].model).status;
        const auto nodes = static_cast<double>(status.backends.size());
        one.planned->assignments = {all[i]};
        one.planned->service = schedule::Service::controlled;
        one.cores = control::Cores{control.cores_requested / nodes, control.cores_granted / nodes};
        one.busy = 0.7;
      }
      for (const schedule::Assignment& part : one.planned->assignments)
        one.gpulet.models.push_back({part.model, 1});
      status.gpulets.push_back(std::move(one));
    }
  }

  std::map<std::string, ControlledModel> models_;
  Time last_{};
};

class FakeCluster {
 public:
  FakeCluster(std::uint32_t devices, std::uint32_t models) : devices_(devices), models_(models) {}

  // The status at `now`, which must increase from call to call.
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
    if (controlled) control_.apply(status, now);
    last_ = now;
    return status;
  }

  void reorganise(Time now) {
    ++epoch_;
    ++reorganisations_.plans;
    serve::PlanDecision decision;
    decision.number = epoch_;
    decision.decided = now - std::chrono::milliseconds(120);
    decision.summary = "plans another division: model-0 gets more requests";
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

  double load = 1;            // factor of every rate
  double violated = 0;        // part of the requests
  bool only_dropped = false;  // served requests are in time
  bool full = false;          // the plan cannot serve the violated part
  bool draining = false;
  bool controlled = false;            // policy roma, on small nodes
  bool a_gpulet_failed = false;       // the first one
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
    one.state = gone ? ModelState::unavailable : ModelState::ready;
    if (gone) one.reason = "no device has memory for it";
    const double seconds = to_seconds(now - Time());
    const double wave = 1 + 0.3 * std::sin(seconds / 30 + index);
    one.rate_planned = rate_of(index) * 1.4;
    one.rate_seen = rate_of(index) * load * wave;
    const double received = last_ == Time() ? 0 : one.rate_seen * to_seconds(now - last_);
    serve::ModelCounters& counted = counters_[index];
    counted.offered += static_cast<std::uint64_t>(received);
    const auto dropped = static_cast<std::uint64_t>(received * violated);
    counted.dropped += dropped;
    counted.served += static_cast<std::uint64_t>(received) - dropped;
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
      one.missing = schedule::UnservedDetail{one.name, one.rate_unserved,
                                             schedule::UnservedCause::devices, 1.4};
    }
    return one;
  }

  void add_node(serve::FrontendStatus& status, std::uint32_t node, std::uint32_t per_node) {
    serve::BackendRecord backend;
    const BackendId id{node + 1};
    const std::string number = std::to_string(node);
    backend.node = "node-" + std::string(number.size() < 2 ? "0" : "") + number;
    for (std::uint32_t i = 0; i < per_node && node * per_node + i < devices_; ++i) {
      DeviceOffer offer;
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

  // Three gpulets of 40, 40 and 20 %, the last with two models. A new plan shifts the models by
  // one.
  void add_gpulets(serve::FrontendStatus& status, BackendId backend,
                   const schedule::DeviceKey& device, std::uint32_t index) const {
    std::uint32_t next = index * 4 + static_cast<std::uint32_t>(epoch_);
    for (std::uint32_t i = 0; i < 3; ++i) {
      serve::GpuletStatus one;
      one.id = GpuletId{index * 3 + i + 1};
      one.gpulet.backend = backend;
      one.gpulet.device = device;
      one.gpulet.size = Share{i == 2 ? 20 : 40};
      one.gpulet.state = GpuletState::ready;
      one.planned = schedule::PlannedGpulet{device, one.gpulet.size, 12.5, {}};
      for (std::uint32_t taken = 0; taken < (i == 2 ? 2U : 1U); ++taken, ++next) {
        const std::uint32_t model = next % models_;
        one.gpulet.models.push_back({name_of(model), 8});
        one.planned->assignments.push_back({name_of(model), rate_of(model), 8, 6.1, 1, 50});
      }
      if (index == 0 && i == 0 && a_gpulet_failed) {
        one.gpulet.state = GpuletState::failed;
        one.gpulet.status = Status(StatusCode::internal, "the file of model-1 is not TorchScript");
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
  FakeControl control_;
  Time last_{};
};

}  // namespace gpulet::testing
