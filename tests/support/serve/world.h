// The simulator's world for tests: devices of one made-up type, and clients that keep every answer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "gpulet/profile/profile.h"
#include "gpulet/serve/frontend_core.h"
#include "tests/support/serve/faulty_cluster.h"

namespace gpulet::serve::testing {

// The profile "card": batch n of each model on p percent takes base_ms * (0.5 + 0.5 n) * 100 / p.
[[nodiscard]] profile::Profile card_profile(const std::map<std::string, double>& base_ms);

// A model of one byte in and one byte out.
[[nodiscard]] ServedModel byte_model(const std::string& name, double slo_ms, double rate);

class World {
 public:
  World(FrontendOptions frontend, std::vector<ServedModel> models, const profile::Profile& profile,
        const simulate::VirtualTimings& options = {});

  // A node with `devices` devices of type "card", connected at once.
  void add_backend(const std::string& node, std::uint32_t devices, double memory_mb = 0);
  // The same with devices that MIG divides as "a100-80".
  void add_mig_backend(const std::string& node, std::uint32_t devices);
  void kill_backend(const std::string& node) { world_.kill_node(node); }
  // Told to stop, as by SIGTERM.
  void stop_backend(const std::string& node) { world_.stop_node(node); }
  bool kill_proxy(const std::string& node) { return world_.kill_proxy(node); }
  void report_device_health(const std::string& node, std::uint32_t device, Status fault) {
    world_.report_device_health(node, device, std::move(fault));
  }

  // A request at that time; the answer shows up in replies().
  void request_at(Time time, const std::string& model, std::uint64_t tag, Duration timeout = {},
                  std::uint32_t priority = 0);
  void drain_at(Time time) { world_.drain_at(time); }
  // The catalogue from that time on; the profile stays.
  void change_models_at(Time time, std::vector<ServedModel> models,
                        std::vector<std::string> asked_for = {},
                        const std::vector<config::ApplicationConfig>& applications = {});
  void set_load_time(const std::string& model, Duration time) { world_.set_load_time(model, time); }
  // Its file is at fault where `why` is invalid, as an executor says it.
  void set_load_failure(const std::string& model, Status why) {
    const FailureCause cause =
        why.code() == StatusCode::invalid ? FailureCause::model_file : FailureCause::unknown;
    world_.set_load_failure(model, std::move(why), cause);
  }
  // On one node only.
  void set_load_failure_on(const std::string& node, const std::string& model, Status why,
                           FailureCause cause) {
    world_.set_load_failure(model, std::move(why), cause, node);
  }
  // As simulate::VirtualCluster: from a backend that is no node of this world.
  void inject(FrontendEvent event) { world_.inject(std::move(event)); }
  void crash_on(const std::string& model, std::byte input, std::uint8_t signal = 11) {
    world_.crash_on(model, input, signal);
  }
  void set_pace(const std::string& node, double factor) { world_.set_pace(node, factor); }
  void slow_on(const std::string& model, std::byte input, Duration latency) {
    world_.slow_on(model, input, latency);
  }
  void observe(simulate::FrontendObserver observer) { world_.observe(std::move(observer)); }
  void run_until(Time time) { world_.run_until(time); }

  struct Answered {
    Time time;
    InferReply reply;
  };
  using Replies = std::map<std::uint64_t, std::vector<Answered>>;
  [[nodiscard]] const Replies& replies() const { return clients_.replies; }
  // For several frontends.
  [[nodiscard]] FaultyCluster& cluster() { return world_; }
  [[nodiscard]] Time now() const { return world_.now(); }
  [[nodiscard]] const FrontendCore& frontend() const { return world_.frontend(); }
  // REQUIRES: the frontend serves a model of that name.
  [[nodiscard]] ModelInfo model(const std::string& name) const;
  [[nodiscard]] FrontendStatus status() const { return world_.frontend().status(now()); }
  [[nodiscard]] bool drained() const { return world_.told().drained; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return world_.told().notes; }
  [[nodiscard]] const std::vector<std::uint64_t>& plans() const { return world_.told().plans; }

 private:
  struct Clients : simulate::VirtualClients {
    std::multimap<Time, InferRequest> agenda;  // those of one time in the order they were made
    Replies replies;

    [[nodiscard]] Time next_request() const override;
    InferRequest take_request() override;
    void answered(InferReply reply, Time now) override;
    void plan_in_force(const schedule::Plan& plan, Time now) override;
  };

  void add_devices(const std::string& node, std::uint32_t devices, schedule::Device like);

  std::unique_ptr<schedule::Policy> policy_;
  simulate::Knowledge knowledge_;
  Clients clients_;
  FaultyCluster world_;
};

}  // namespace gpulet::serve::testing
