#include "serve/dispatch/queue_simulation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/profile/latency_simulator.h"
#include "serve/dispatch/dispatcher.h"

namespace gpulet::serve {
namespace {

using schedule::Assignment;
using schedule::PlannedGpulet;

constexpr Duration kLink = std::chrono::microseconds(100);  // frontend to backend, one way
constexpr BackendId kBackend{1};
constexpr ClientId kClient{1};
// This part of the requests comes before those that are counted.
constexpr std::uint64_t kWarmUp = 50;

// A reference to an object that outlives the pointer.
template <typename T>
std::shared_ptr<const T> borrowed(const T* object) {
  return {object, [](const T*) {}};
}

class DeviceSimulation {
 public:
  DeviceSimulation(const std::vector<const PlannedGpulet*>& gpulets, const schedule::Device& device,
                   const schedule::PlanInput& input, const QueueSimulationOptions& options)
      : options_(options),
        times_(device.type, borrowed(input.profiles),
               input.interference != nullptr && !device.mig
                   ? borrowed(input.interference)
                   : std::make_shared<const profile::InterferenceSet>()),
        dispatcher_({}, UINT32_MAX, BatchId{1}) {
    times_.vary(std::nullopt, stream_seed(options.seed, "batches"));
    const profile::Profile& profile = input.profiles->find(device.type)->second;
    std::vector<GpuletRoute> routes;
    for (const PlannedGpulet* planned : gpulets) {
      GpuletRoute& route = routes.emplace_back();
      route.gpulet = GpuletId{routes.size()};
      route.backend = kBackend;
      route.duty_cycle = from_ms(planned->duty_cycle_ms);
      const auto beside = std::count_if(gpulets.begin(), gpulets.end(), [&](const auto* other) {
        return other == planned || (planned->instance && other->instance == planned->instance);
      });
      processes_.push_back({planned->size, static_cast<std::uint32_t>(beside), {}, {}});
      if (beside > 1 && profile.knows_processes()) {
        route.processes = processes_.back().beside;
        route.instance = 1 + planned->instance->start;
      }
      for (const Assignment& assignment : planned->assignments)
        add_slot(assignment, processes_.back(), profile, input.options.margin, route);
    }
    dispatcher_.set_routes(routes, now_);
  }

  void run() {
    std::uint64_t left = options_.requests + options_.requests / kWarmUp;
    std::uint64_t counted_from = options_.requests;
    for (Stream& stream : streams_) draw_arrival(stream);
    while (left > 0) {
      const Stream& first =
          *std::min_element(streams_.begin(), streams_.end(),
                            [](const Stream& a, const Stream& b) { return a.next < b.next; });
      if (first.next == kNever) return;
      run_until(first.next);
      counts_ = left <= counted_from;
      request(static_cast<ModelIndex>(&first - streams_.data()));
      --left;
    }
    counts_ = true;
    run_until(kNever);
  }

  // Empty: no gpulet of the device has the model.
  [[nodiscard]] std::optional<double> violation_of(const std::string& model) const {
    const auto found = models_.find(model);
    if (found == models_.end()) return std::nullopt;
    const Stream& stream = streams_[found->second];
    if (stream.offered == 0) return 0.0;
    return static_cast<double>(stream.violations) / static_cast<double>(stream.offered);
  }

 private:
  struct Stream {  // the requests of one model
    double rate = 0;
    Duration slo{};
    Random random;
    Time next = kNever;
    std::uint64_t offered = 0;
    std::uint64_t violations = 0;
  };
  struct Sent {
    Time arrives{};
    Batch batch;
  };
  struct Held {
    BatchId id;
    profile::SimulatedBatch what;
    Duration latency{};
  };
  struct Process {  // one gpulet
    Share size;
    std::uint32_t beside = 1;  // processes in its MIG instance, including itself
    std::deque<Held> held;
    Time ends{};  // of the first one
  };
  struct Done {
    Time arrives{};
    BatchResult result;
  };

  void add_slot(const Assignment& assignment, const Process& process,
                const profile::Profile& profile, const std::optional<double>& asked_margin,
                GpuletRoute& route) {
    const profile::ModelProfile* const measured = profile.find(assignment.model);
    if (measured == nullptr || !(assignment.rate > 0)) return;
    const profile::LatencyTable& table = measured->latency_of(process.beside);
    const double margin = schedule::margin_of(asked_margin, table);
    SlotSpec slot;
    for (std::uint32_t count = 1; count <= assignment.batch; ++count) {
      const std::optional<double> alone_ms = table.latency_ms(count, process.size);
      if (!alone_ms) return;
      slot.execution.push_back(from_ms(*alone_ms * assignment.slowdown * margin));
    }
    const auto [found, added] = models_.try_emplace(assignment.model, streams_.size());
    if (added) {
      ServedModel served;
      served.name = assignment.model;
      served.slo_ms = assignment.slo_ms;
      dispatcher_.versions().add(std::move(served));
      streams_.push_back(
          {0, from_ms(assignment.slo_ms), Random(stream_seed(options_.seed, assignment.model))});
    }
    slot.model = found->second;
    slot.rate = assignment.rate;
    streams_[slot.model].rate += assignment.rate;
    route.slots.push_back(std::move(slot));
  }

  void draw_arrival(Stream& stream) const {
    stream.next = (stream.next == kNever ? now_ : stream.next) +
                  from_seconds(stream.random.exponential(1 / stream.rate));
  }

  void request(ModelIndex model) {
    Stream& stream = streams_[model];
    now_ = stream.next;
    Request request;
    request.client = kClient;
    request.deadline = now_ + stream.slo;
    request.grace = Request::kNoLimit;
    request.trace.arrived = now_;
    request.tag = counts_ ? 1 : 0;
    if (counts_) ++stream.offered;
    draw_arrival(stream);
    output_ = {};
    dispatcher_.enqueue(model, std::move(request), now_, output_);
    pump();
  }

  void pump() {
    dispatcher_.pump(now_, output_);
    for (BatchToSend& one : output_.batches) sent_.push_back({now_ + kLink, std::move(one.batch)});
    for (const Answer& answer : output_.answers) {
      const bool violates = !answer.status.ok() || now_ > answer.request.due();
      if (violates && answer.request.tag == 1) ++streams_[answer.model].violations;
    }
    output_ = {};
  }

  // Handles everything before that time; for kNever until nothing is left to do.
  void run_until(Time time) {
    while (true) {
      Time next = std::min(dispatcher_.next_wake(), sent_.empty() ? kNever : sent_.front().arrives);
      if (!done_.empty()) next = std::min(next, done_.front().arrives);
      for (const Process& process : processes_) {
        if (!process.held.empty()) next = std::min(next, process.ends);
      }
      if (next >= time) return;
      now_ = std::max(now_, next);
      handle();
    }
  }

  void handle() {
    for (Process& process : processes_) {
      if (!process.held.empty() && process.ends <= now_) end_batch(process);
    }
    for (; !sent_.empty() && sent_.front().arrives <= now_; sent_.pop_front())
      start_batch(sent_.front().batch);
    bool due = dispatcher_.next_wake() <= now_;
    for (; !done_.empty() && done_.front().arrives <= now_; done_.pop_front(), due = true)
      dispatcher_.completed(done_.front().result, now_, output_);
    if (due) pump();
  }

  // A batch takes as long as what its neighbours hold then lets it (BackendCore).
  void start_batch(const Batch& batch) {
    Process& process = processes_[batch.gpulet.value - 1];
    std::vector<profile::SimulatedBatch> beside;
    for (const Process& other : processes_) {
      if (&other != &process && !other.held.empty()) beside.push_back(other.held.front().what);
    }
    Held held{batch.id, {batch.model, batch.count, process.size, process.beside}, {}};
    held.latency = times_.latency(held.what, beside).value();
    if (process.held.empty()) process.ends = now_ + held.latency;
    process.held.push_back(std::move(held));
  }

  void end_batch(Process& process) {
    BatchResult result;
    result.id = process.held.front().id;
    result.executed = process.held.front().latency;
    done_.push_back({now_ + kLink, std::move(result)});
    process.held.pop_front();
    if (!process.held.empty()) process.ends = now_ + process.held.front().latency;
  }

  QueueSimulationOptions options_;
  profile::LatencySimulator times_;
  Dispatcher dispatcher_;
  Time now_{};
  std::map<std::string, ModelIndex> models_;
  std::vector<Stream> streams_;  // by model
  std::vector<Process> processes_;
  std::deque<Sent> sent_;
  std::deque<Done> done_;
  DispatchOutput output_;
  bool counts_ = false;  // requests that arrive now
};

}  // namespace

schedule::PredictedViolations simulate_violations(const schedule::Plan& plan,
                                                  const schedule::PlanInput& input,
                                                  const QueueSimulationOptions& options) {
  schedule::PredictedViolations predicted(plan.gpulets.size());
  std::map<schedule::DeviceKey, std::vector<std::size_t>> by_device;
  for (std::size_t at = 0; at < plan.gpulets.size(); ++at) {
    predicted[at].resize(plan.gpulets[at].assignments.size());
    if (plan.gpulets[at].service == schedule::Service::rounds)
      by_device[plan.gpulets[at].device].push_back(at);
  }
  for (const schedule::Device& device : input.cluster.devices) {
    const auto found = by_device.find(device.key);
    if (found == by_device.end() || !input.profiles->contains(device.type)) continue;
    std::vector<const PlannedGpulet*> gpulets;
    for (const std::size_t at : found->second) gpulets.push_back(&plan.gpulets[at]);
    DeviceSimulation simulation(gpulets, device, input, options);
    simulation.run();
    for (const std::size_t at : found->second) {
      for (std::size_t one = 0; one < predicted[at].size(); ++one)
        predicted[at][one] = simulation.violation_of(plan.gpulets[at].assignments[one].model);
    }
  }
  return predicted;
}

}  // namespace gpulet::serve
