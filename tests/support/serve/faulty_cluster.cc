#include "tests/support/serve/faulty_cluster.h"

#include <algorithm>

namespace gpulet::serve::testing {

namespace {

Status reset() { return {StatusCode::unavailable, "connection reset"}; }

bool has(const node::RunOnProxy& batch, std::byte input) {
  const auto bytes = batch.input.view();
  return std::find(bytes.begin(), bytes.end(), input) != bytes.end();
}

}  // namespace

void InjectedMishaps::set_load_failure(const std::string& model, Status why, FailureCause cause,
                                       const std::string& node) {
  if (why.ok()) {
    load_failures_.erase({model, node});
  } else {
    load_failures_.insert_or_assign({model, node}, simulate::LoadFailure{std::move(why), cause});
  }
}

Duration InjectedMishaps::load_time(const std::string& model, Duration usual) const {
  const auto found = load_times_.find(model);
  return found == load_times_.end() ? usual : found->second;
}

std::optional<simulate::LoadFailure> InjectedMishaps::load_failure(const std::string& node,
                                                                   const std::string& model) const {
  for (const std::string& where : {std::string(), node}) {
    const auto found = load_failures_.find({model, where});
    if (found != load_failures_.end()) return found->second;
  }
  return std::nullopt;
}

bool InjectedMishaps::hangs_while_loading(const std::string& node, const std::string& model) const {
  return load_hangs_.contains({model, {}}) || load_hangs_.contains({model, node});
}

Duration InjectedMishaps::duration(const std::string& node, const node::RunOnProxy& batch,
                                   Duration usual) const {
  const auto pace = paces_.find(node);
  if (pace != paces_.end()) usual = from_seconds(to_seconds(usual) * pace->second);
  const auto slow = slow_inputs_.find(batch.batch.model);
  if (slow == slow_inputs_.end()) return usual;
  for (const SlowInput& one : slow->second) {
    if (has(batch, one.input)) usual = std::max(usual, one.latency);
  }
  return usual;
}

std::uint8_t InjectedMishaps::signal(const std::string& node, const node::RunOnProxy& batch) const {
  constexpr std::uint8_t kSegmentationFault = 11;
  const auto crash = crashes_.find(batch.batch.model);
  if (crash != crashes_.end() && has(batch, crash->second.input)) return crash->second.signal;
  return crashing_nodes_.contains(node) ? kSegmentationFault : 0;
}

void FaultyCluster::kill_frontend(std::size_t frontend) {
  frontends().kill(frontend);
  links().disconnect_frontend(frontend, reset());
}

void FaultyCluster::heal(const std::string& node, std::size_t frontend) {
  const simulate::NodeIndex index = nodes().index_of(node);
  links().disconnect(index, frontend, reset());
  links().connect_later(index, frontend);
}

void FaultyCluster::kill_node(const std::string& name) {
  const simulate::NodeIndex index = nodes().index_of(name);
  nodes().kill(index);
  links().disconnect_node(index, reset());
}

bool FaultyCluster::kill_proxy(const std::string& name) {
  const simulate::NodeIndex index = nodes().index_of(name);
  GpuletId chosen{UINT64_MAX};
  for (const GpuletId id : nodes().processes().gpulets(index)) {
    if (nodes().core(index).phase_of(id) == node::GpuletPhase::ready) chosen = std::min(chosen, id);
  }
  if (!nodes().processes().remove(index, chosen)) return false;
  node::ProxyEnded ended{chosen, {StatusCode::unavailable, "killed by signal 9"}};
  ended.end.signal = 9;
  nodes().feed(index, std::move(ended));
  return true;
}

void FaultyCluster::change_catalogue_at(Time time, CatalogueChanged change) {
  agenda().call_at(time, [this, change = std::move(change)] {
    for (std::size_t i = 0; i < frontends().size(); ++i) inject(change, i);
  });
}

}  // namespace gpulet::serve::testing
