#include "simulate/virtual_nodes.h"

#include <algorithm>

#include "gpulet/base/random.h"

namespace gpulet::simulate {
namespace {

// In one piece, as a daemon receives it.
std::vector<Bytes> together(const std::vector<Bytes>& pieces) {
  if (pieces.empty()) return {};
  std::vector<std::byte> bytes;
  for (const Bytes& piece : pieces)
    bytes.insert(bytes.end(), piece.view().begin(), piece.view().end());
  return {Bytes::own(std::move(bytes))};
}

}  // namespace

NodeIndex VirtualNodes::add(const std::string& name, const std::vector<schedule::Device>& devices) {
  node::BackendCoreOptions options;
  options.node = name;
  options.profiles = knowledge_.profiles;
  options.interference = knowledge_.simulated;
  options.all_simulated = true;
  options.simulated_cv = timings_.batch_cv;
  options.simulation_seed = stream_seed(timings_.batch_seed, name);
  // A batch that shares its cores takes so much longer.
  options.hang_factor *= timings_.batches_at_once;
  std::vector<VirtualDevice> there;
  for (const schedule::Device& device : devices) {
    options.devices.push_back({device, "simulated"});
    there.push_back({device.cores, {}});
    if (timings_.batches_at_once > 1 && device.cores > 0)
      there.back().simulator.emplace(device.type, knowledge_.profiles, knowledge_.simulated);
  }
  processes_.add_node(name, std::move(there));
  nodes_.push_back({name, std::make_unique<node::BackendCore>(std::move(options))});
  return nodes_.size() - 1;
}

void VirtualNodes::kill(NodeIndex node) {
  nodes_[node].core = nullptr;
  processes_.clear(node);
}

NodeIndex VirtualNodes::index_of(const std::string& name) const {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&name](const Node& node) {
    return node.core != nullptr && node.name == name;
  });
  return static_cast<NodeIndex>(found - nodes_.begin());
}

void VirtualNodes::feed(NodeIndex index, node::BackendEvent event) {
  node_effects_.clear();
  nodes_[index].core->on(std::move(event), agenda_.now(), node_effects_);
  for (node::BackendEffect& effect : node_effects_)
    std::visit([this, index](auto& one) { carry_out(index, one); }, effect);
  Node& node = nodes_[index];
  const Time wake = node.core->next_wakeup();
  if (wake >= node.wake) return;
  node.wake = wake;
  agenda_.add(wake, Timer::Kind::node_wakes, index, {});
}

void VirtualNodes::command(NodeIndex node, FrontendId from, BackendCommand command) {
  receiving_from_ = from;
  std::visit([this, node](auto& one) { receive(node, one); }, command);
}

void VirtualNodes::wake(const Timer& timer) {
  Node& node = nodes_[timer.node];
  if (node.core == nullptr || timer.due.time != node.wake) return;
  node.wake = kNever;
  feed(timer.node, node::TimePassed{});
}

void VirtualNodes::receive(NodeIndex node, Batch& command) {
  command.inputs = together(command.inputs);
  const bool placed = nodes_[node].core->takes_batches(receiving_from_, command.gpulet);
  pass_on(node, node::BatchArrived{std::move(command), agenda_.now(), placed});
}

void VirtualNodes::receive(NodeIndex node, Rows& command) {
  command.inputs = together(command.inputs);
  const bool wanted = nodes_[node].core->takes_rows(
      receiving_from_, command, command.inputs.empty() ? 0 : command.inputs.front().size());
  if (!wanted) command.inputs.clear();
  pass_on(node, std::move(command));
}

void VirtualNodes::carry_out(NodeIndex node, node::RunOnProxy& effect) {
  if (!effect.pieces.empty()) effect.input = together(effect.pieces).front();
  processes_.carry_out(node, effect);
}

void VirtualNodes::carry_out(NodeIndex node, node::SendToFrontend& effect) {
  if (!links_.connects(node, effect.frontend)) return;
  if (!mishaps_.passes(nodes_[node].name, effect.message)) return;
  links_.send(node, effect.frontend, std::move(effect.message));
}

}  // namespace gpulet::simulate
