#include "simulate/virtual_processes.h"

#include <algorithm>

namespace gpulet::simulate {
namespace {

constexpr double kAllPercent = 100;

}  // namespace

std::vector<GpuletId> VirtualProcesses::gpulets(NodeIndex node) const {
  std::vector<GpuletId> ids;
  for (const auto& [id, process] : nodes_[node].processes) ids.push_back(id);
  return ids;
}

void VirtualProcesses::feed_at(Time time, NodeIndex node, GpuletId gpulet, std::uint64_t life,
                               node::BackendEvent event) {
  agenda_.call_at(time, [this, node, gpulet, life, event = std::move(event)] {
    const auto found = nodes_[node].processes.find(gpulet);
    if (found != nodes_[node].processes.end() && found->second.life == life)
      ends_.feed_node(node, event);
  });
}

node::ProxyLoaded VirtualProcesses::loaded(const Node& node, GpuletId gpulet,
                                           const LoadModels& models) const {
  node::ProxyLoaded loaded{gpulet, {}};
  for (const ModelToLoad& model : models.models) {
    if (!loaded.status.ok()) break;
    const std::optional<LoadFailure> failure = mishaps_.load_failure(node.name, model.name);
    if (!failure) continue;
    loaded.status = failure->why;
    loaded.cause = failure->cause;
    // Backends name the model of a failure with its file, but not of one to make a process.
    const bool of_a_file =
        loaded.cause == FailureCause::node_disk || loaded.cause == FailureCause::node_store;
    if (of_a_file || !is_machine_cause(loaded.cause)) loaded.failed_model = model.name;
  }
  return loaded;
}

void VirtualProcesses::carry_out(NodeIndex index, const node::StartGpulet& effect) {
  Node& node = nodes_[index];
  const GpuletId id = effect.gpulet;
  const std::uint64_t life = next_life_++;
  Process& process = node.processes[id];
  process = Process{};
  process.life = life;
  const VirtualDevice& device = node.devices[effect.device];
  process.cores = device.cores * effect.size.fraction();
  process.device = effect.device;
  if (device.simulator && effect.adjustable) process.shared.emplace(process.cores);
  const std::vector<ModelToLoad>& models = effect.models.models;
  Duration load{};
  for (const ModelToLoad& model : models)
    load += mishaps_.load_time(model.name, timings_.model_load);
  const Time started = agenda_.now() + timings_.process_start;
  feed_at(started, index, id, life, node::ProxyStarted{id});
  const bool hangs = std::any_of(models.begin(), models.end(), [&](const ModelToLoad& model) {
    return mishaps_.hangs_while_loading(node.name, model.name);
  });
  if (!hangs) feed_at(started + load, index, id, life, loaded(node, id, effect.models));
}

void VirtualProcesses::carry_out(NodeIndex node, const node::ActivateShare& effect) {
  const GpuletId gpulet = effect.gpulet;
  feed_at(agenda_.now(), node, gpulet, nodes_[node].processes.at(gpulet).life,
          node::ShareActive{gpulet, {}});
}

void VirtualProcesses::carry_out(NodeIndex node, const node::AdjustCores& effect) {
  const GpuletId gpulet = effect.gpulet;
  Process& process = nodes_[node].processes.at(gpulet);
  count_busy(process);
  process.cores = effect.cores;
  if (process.shared) {
    process.shared->set_cores(effect.cores, agenda_.now());
    if (process.running) end_batch_at(process.shared->next_end(), node, gpulet, process);
  } else {
    stretch(node, gpulet, process, effect.stretch);
  }
  feed_at(agenda_.now(), node, gpulet, process.life, node::CoresSet{gpulet, {}});
}

void VirtualProcesses::carry_out(NodeIndex node, node::RunOnProxy& effect) {
  const GpuletId gpulet = effect.gpulet;
  Process& process = nodes_[node].processes.at(gpulet);
  process.batches.push_back(std::move(effect));
  if (process.shared) return run_beside(node, gpulet, process);
  if (!process.running) run_next(node, gpulet, process);
}

void VirtualProcesses::carry_out(NodeIndex node, const node::FinishProxy& effect) {
  Process& process = nodes_[node].processes.at(effect.gpulet);
  process.finishing = true;
  if (!process.running) end(node, effect.gpulet, {});
}

void VirtualProcesses::end(NodeIndex node, GpuletId gpulet, const Status& reason) {
  remove(node, gpulet);
  agenda_.call_at(agenda_.now(), [this, node, gpulet, reason] {
    if (ends_.node_runs(node)) ends_.feed_node(node, node::ProxyEnded{gpulet, reason});
  });
}

void VirtualProcesses::run_next(NodeIndex node, GpuletId gpulet, Process& process) {
  process.running = true;
  process.began = agenda_.now();
  process.counted_until = agenda_.now();
  node::RunOnProxy& batch = process.batches.front();
  batch.batch.simulated_latency = duration_of(node, batch);
  end_batch_at(agenda_.now() + batch.batch.simulated_latency, node, gpulet, process);
}

void VirtualProcesses::run_beside(NodeIndex index, GpuletId gpulet, Process& process) {
  const Node& node = nodes_[index];
  count_busy(process);
  if (!process.running) process.counted_until = agenda_.now();
  process.running = true;
  const node::RunOnProxy& batch = process.batches.back();
  const VirtualDevice& device = node.devices[process.device];
  const auto time_on = [this, index, &device, batch](double cores) {
    node::RunOnProxy part = batch;
    const Result<Duration> latency = device.simulator->latency_under_quota(
        batch.batch.model, batch.batch.count, kAllPercent * cores / device.cores);
    // The node has refused models without latencies (NodeDevices).
    if (latency.ok()) part.batch.simulated_latency = latency.value();
    return duration_of(index, part);
  };
  process.shared->add(batch.batch.id.value, time_on, agenda_.now());
  end_batch_at(process.shared->next_end(), index, gpulet, process);
}

node::RunOnProxy VirtualProcesses::take_done(NodeIndex node, GpuletId gpulet, Process& process) {
  auto ended = process.batches.begin();
  if (process.shared) {
    const SharedProcessor::Ended one = process.shared->take_ended(agenda_.now());
    ended = std::find_if(ended, process.batches.end(), [&one](const node::RunOnProxy& batch) {
      return batch.batch.id.value == one.id;
    });
    ended->batch.simulated_latency = one.took;
  }
  node::RunOnProxy done = std::move(*ended);
  process.batches.erase(ended);
  process.running = !process.batches.empty();
  if (!process.running) return done;
  if (process.shared) {
    end_batch_at(process.shared->next_end(), node, gpulet, process);
  } else {
    run_next(node, gpulet, process);
  }
  return done;
}

Duration VirtualProcesses::duration_of(NodeIndex node, const node::RunOnProxy& batch) const {
  Duration usual = batch.batch.simulated_latency;
  if (timings_.pace != 1) usual = from_seconds(to_seconds(usual) * timings_.pace);
  return mishaps_.duration(nodes_[node].name, batch, usual);
}

void VirtualProcesses::end_batch_at(Time time, NodeIndex node, GpuletId gpulet, Process& process) {
  process.ends = time;
  process.end_order = agenda_.add(time, Timer::Kind::batch_done, node, gpulet);
}

void VirtualProcesses::stretch(NodeIndex node, GpuletId gpulet, Process& process, double factor) {
  const auto stretched = [factor](Duration duration) {
    return from_seconds(to_seconds(duration) * factor);
  };
  for (node::RunOnProxy& batch : process.batches)
    batch.batch.simulated_latency = stretched(batch.batch.simulated_latency);
  if (!process.running || factor == 1) return;
  end_batch_at(agenda_.now() + stretched(process.ends - agenda_.now()), node, gpulet, process);
  process.batches.front().batch.simulated_latency = process.ends - process.began;
}

void VirtualProcesses::count_busy(Process& process) {
  if (!process.running) return;
  core_seconds_busy_ += process.cores * to_seconds(agenda_.now() - process.counted_until);
  process.counted_until = agenda_.now();
}

bool VirtualProcesses::crash(const Timer& timer, const Process& process) {
  const std::uint8_t signal = mishaps_.signal(nodes_[timer.node].name, process.batches.front());
  if (signal == 0) return false;
  remove(timer.node, timer.gpulet);
  node::ProxyEnded ended{timer.gpulet, {StatusCode::unavailable, "the process crashed"}};
  ended.end.signal = signal;
  ends_.feed_node(timer.node, std::move(ended));
  return true;
}

void VirtualProcesses::batch_done(const Timer& timer) {
  Node& node = nodes_[timer.node];
  const auto found = node.processes.find(timer.gpulet);
  if (found == node.processes.end() || found->second.end_order != timer.due.order) return;
  Process& process = found->second;
  if (crash(timer, process)) return;
  count_busy(process);
  node::RunOnProxy done = take_done(timer.node, timer.gpulet, process);
  const bool ends = process.finishing && !process.running;
  const BatchRan ran{done.batch.id, {}, done.input.size(), {}, done.batch.simulated_latency};
  ends_.feed_node(timer.node, node::BatchCompleted{timer.gpulet, ran, std::move(done.input)});
  if (!ends) return;
  remove(timer.node, timer.gpulet);
  ends_.feed_node(timer.node, node::ProxyEnded{timer.gpulet, {}});
}

}  // namespace gpulet::simulate
