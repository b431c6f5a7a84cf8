// What MadeUpCluster tells of control: on each node a CPU of six cores beside its other devices, an
// executable for all models on each of these, one for each model on the CPU. Cores follow the load,
// a few seconds late, and too few of them make the answers slow.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gpulet/core/time.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::testing {

class MadeUpControl {
 public:
  // Makes what it finds one whose last device of each node is a CPU. REQUIRES: a node, a model.
  void take_over(serve::FrontendStatus& status, Time now) {
    const double seconds = last_ == Time() ? 0 : to_seconds(now - last_);
    last_ = now;
    status.policy = "roma";
    const auto nodes = static_cast<double>(status.backends.size());
    double asked = 0;
    for (serve::ModelStatus& model : status.models) asked += ask(model, seconds, now);
    const double contention = asked > 0 ? kNodeCores * nodes / asked : 0;
    for (serve::ModelStatus& model : status.models) give(model, contention, seconds);
    status.gpulets.clear();
    for (auto& [id, backend] : status.backends) {
      status.controlled_nodes.push_back({backend.devices.back().device.key, kNodeCores,
                                         asked / nodes, asked / nodes * std::min(1.0, contention),
                                         contention});
      for (serve::DeviceOffer& offer : backend.devices) {
        const bool is_cpu = &offer == &backend.devices.back();
        if (is_cpu) make_cpu(offer);
        add_executables(status, id, offer.device, is_cpu);
      }
    }
    for (serve::DeviceStatus& device : status.devices) {
      if (is_cpu(status, device.key)) device.type = "cpu-core";
    }
  }

 private:
  static constexpr double kNodeCores = 6;
  static constexpr double kSetPoint = 0.8;           // of the objective
  static constexpr double kCoreSecondsOfOne = 0.12;  // request
  static constexpr double kFollows = 0.35;           // of the way, each period

  struct Model {
    double asked = 1;
    double needed = 1;
    double gpu_part = 0;
    serve::ModelControlStatus told;
  };

  double ask(const serve::ModelStatus& status, double seconds, Time now) {
    Model& model = models_[status.name];
    const double phase = to_seconds(now - Time()) / 20 + status.slo_ms;
    model.gpu_part = 0.55 + 0.15 * std::sin(phase);
    const double on_cpu = status.rate_seen * (1 - model.gpu_part);
    model.needed = on_cpu * kCoreSecondsOfOne * (1 + 0.08 * std::sin(9 * phase));
    model.asked = std::max(0.1, model.asked + kFollows * (model.needed - model.asked));
    const double answered = status.rate_seen * seconds;
    model.told.on_gpu += static_cast<std::uint64_t>(answered * model.gpu_part);
    model.told.on_cpu += static_cast<std::uint64_t>(answered * (1 - model.gpu_part));
    return model.asked;
  }

  void give(serve::ModelStatus& status, double contention, double seconds) {
    Model& model = models_[status.name];
    const double given = model.asked * std::min(1.0, contention);
    serve::ModelControlStatus& told = model.told;
    told.set_point_ms = kSetPoint * status.slo_ms;
    told.response_ms = told.set_point_ms * std::min(4.0, std::pow(model.needed / given, 1.4));
    told.gpu_part = model.gpu_part;
    told.cores_asked = model.asked;
    told.cores_given = given;
    ++told.periods;
    if (told.response_ms > status.slo_ms) ++told.violated_periods;
    told.core_seconds += given * seconds;
    status.rate_planned = 0;
    status.p50_ms = 0.9 * told.response_ms;
    status.p99_ms = 1.6 * told.response_ms;
    status.control = told;
  }

  static void make_cpu(serve::DeviceOffer& offer) {
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

  void add_executables(serve::FrontendStatus& status, BackendId backend,
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
      one.gpulet.state = serve::GpuletState::ready;
      one.planned = schedule::PlannedGpulet{device.key, one.gpulet.size, 0, all, {}};
      one.planned->service = schedule::Service::by_need;
      one.busy = 0.9;
      if (on_cpu) {
        const serve::ModelControlStatus& told = models_.at(all[i].model).told;
        const auto nodes = static_cast<double>(status.backends.size());
        one.planned->assignments = {all[i]};
        one.planned->service = schedule::Service::controlled;
        one.cores = control::Cores{told.cores_asked / nodes, told.cores_given / nodes};
        one.busy = 0.7;
      }
      for (const schedule::Assignment& part : one.planned->assignments)
        one.gpulet.models.push_back({part.model, 1});
      status.gpulets.push_back(std::move(one));
    }
  }

  std::map<std::string, Model> models_;
  Time last_{};
};

}  // namespace gpulet::testing
