// FaultyCluster: a VirtualCluster whose frontends, nodes, processes and connections fail as a test
// says. Every fault holds from the call on. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "simulate/virtual_cluster.h"

namespace gpulet::serve::testing {

// What befalls processes and their messages.
class InjectedMishaps : public simulate::Mishaps {
 public:
  // Processes that load the model fail with `why` on that node, or on every node if `node` is
  // empty. ok: they load it again.
  void set_load_failure(const std::string& model, Status why,
                        FailureCause cause = FailureCause::unknown, const std::string& node = {});
  void set_load_time(const std::string& model, Duration time) { load_times_[model] = time; }
  // Processes that load the model on that node, or on every node if `node` is empty, never end its
  // first run.
  void hang_while_loading(const std::string& model, const std::string& node = {}) {
    load_hangs_.emplace(model, node);
  }
  // Every batch ends its process by signal 11 on that node.
  void crash_every_batch_on(const std::string& node) { crashing_nodes_.insert(node); }
  // Processes that complete a batch of the model with this byte in its input end by the signal
  // instead.
  void crash_on(const std::string& model, std::byte input, std::uint8_t signal) {
    crashes_.insert_or_assign(model, Crash{input, signal});
  }
  // Batches on that node take this multiple of their usual time.
  void set_pace(const std::string& node, double factor) { paces_[node] = factor; }
  // Batches of the model with this byte in their input take that long at least.
  void slow_on(const std::string& model, std::byte input, Duration latency) {
    slow_inputs_[model].push_back({input, latency});
  }
  // Sees every message of a node before it is sent, and may change it. False: it gets lost.
  using MessageFilter = std::function<bool(const std::string& node, BackendMessage& message)>;
  void filter_messages(MessageFilter filter) { filter_ = std::move(filter); }

  [[nodiscard]] Duration load_time(const std::string& model, Duration usual) const override;
  [[nodiscard]] std::optional<simulate::LoadFailure> load_failure(
      const std::string& node, const std::string& model) const override;
  [[nodiscard]] bool hangs_while_loading(const std::string& node,
                                         const std::string& model) const override;
  [[nodiscard]] Duration duration(const std::string& node, const node::RunOnProxy& batch,
                                  Duration usual) const override;
  [[nodiscard]] std::uint8_t signal(const std::string& node,
                                    const node::RunOnProxy& batch) const override;
  bool passes(const std::string& node, BackendMessage& message) override {
    return !filter_ || filter_(node, message);
  }

 private:
  using ModelAndNode = std::pair<std::string, std::string>;  // an empty node: all of them
  struct Crash {
    std::byte input{};
    std::uint8_t signal = 0;
  };
  struct SlowInput {
    std::byte input{};
    Duration latency{};
  };

  std::map<ModelAndNode, simulate::LoadFailure> load_failures_;
  std::map<std::string, Duration> load_times_;  // by model
  std::set<ModelAndNode> load_hangs_;
  std::set<std::string> crashing_nodes_;
  std::map<std::string, Crash> crashes_;                       // by model
  std::map<std::string, double> paces_;                        // by node
  std::map<std::string, std::vector<SlowInput>> slow_inputs_;  // by model
  MessageFilter filter_;                                       // may be empty
};

class FaultyCluster : public InjectedMishaps, public simulate::VirtualCluster {
 public:
  FaultyCluster(const simulate::VirtualTimings& timings, FrontendOptions frontend,
                simulate::ServedLoad served, simulate::Knowledge knowledge,
                simulate::VirtualClients& clients)
      : VirtualCluster(timings, std::move(frontend), std::move(served), std::move(knowledge),
                       clients, static_cast<simulate::Mishaps&>(*this)) {}

  // Kills the frontend's process: its connections end.
  void kill_frontend(std::size_t frontend);
  // Between these two, the frontend takes no event, as after SIGSTOP.
  void pause_frontend(std::size_t frontend) { frontends().pause(frontend); }
  void resume_frontend(std::size_t frontend) { frontends().resume(frontend); }
  // Messages between the two are lost. The peers find out by their heartbeats.
  void cut(const std::string& node, std::size_t frontend) {
    links().cut(nodes().index_of(node), frontend);
  }
  // The node connects to the frontend anew.
  void heal(const std::string& node, std::size_t frontend);

  // Kills the backend process and with it its gpulets.
  void kill_node(const std::string& name);
  // Stops the backend as SIGTERM does: its models may move first.
  void stop_node(const std::string& name) {
    nodes().feed(nodes().index_of(name), node::ShutDown{});
  }
  // Kills the process of the ready gpulet with the lowest id. Returns false if there is none.
  bool kill_proxy(const std::string& node);
  // Reports a device as failed, or as usable again (ok).
  void report_device_health(const std::string& node, std::uint32_t device, Status fault) {
    nodes().feed(nodes().index_of(node), node::DeviceHealthReported{device, std::move(fault)});
  }

  void drain_at(Time time) {
    agenda().call_at(time, [this] { inject(Drain{}); });
  }
  // For every frontend.
  void change_catalogue_at(Time time, CatalogueChanged change);

  // The terms of all SupersededBy.
  [[nodiscard]] const std::vector<Term>& superseded() const { return told().superseded; }
};

}  // namespace gpulet::serve::testing
