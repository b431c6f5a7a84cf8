#include "gpulet/simulate/simulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "simulate/arrivals.h"
#include "simulate/tally.h"

namespace gpulet::simulate {
namespace {

constexpr double kLongest_s = 1e7;  // some months; beyond, nanoseconds would overflow
// A plan is in force, and every request answered, long before: else something is wrong.
constexpr Duration kPatience = std::chrono::minutes(30);
constexpr Duration kLook = std::chrono::milliseconds(50);

// Offers the load and counts what becomes of it.
class Clients : public Outside {
 public:
  Clients(const Scene& scene, const SimulationOptions& options)
      : scene_(scene), options_(options), tally_(scene.demands, options) {}

  void start(Time now) {
    tally_.start(now);
    arrivals_.emplace(scene_.demands, options_.trace.get(), options_.seed, now, options_.seconds);
    next_ = arrivals_->next();
  }

  [[nodiscard]] Time next_request() const override { return next_; }

  serve::InferRequest take_request() override {
    if (free_.empty()) {
      free_.push_back(waiting_.size());
      waiting_.emplace_back();
    }
    const std::uint64_t tag = free_.back();
    free_.pop_back();
    waiting_[tag] = {next_, arrivals_->take()};
    tally_.offered(waiting_[tag].model, next_);
    next_ = arrivals_->next();
    serve::InferRequest request;
    request.tag = tag;
    request.model = scene_.demands[waiting_[tag].model].name;
    return request;
  }

  void answered(serve::InferReply reply, Time now) override {
    const Waiting& asked = waiting_[reply.tag];
    tally_.answered(asked.model, asked.arrived, now, reply.status);
    free_.push_back(reply.tag);
  }

  void plan_in_force(const schedule::Plan& plan, Time now) override {
    tally_.plan_in_force(plan, now);
  }

  [[nodiscard]] std::size_t outstanding() const { return waiting_.size() - free_.size(); }
  [[nodiscard]] Tally& tally() { return tally_; }

 private:
  struct Waiting {
    Time arrived{};
    std::size_t model = 0;
  };
  const Scene& scene_;
  const SimulationOptions& options_;
  Tally tally_;
  std::optional<Arrivals> arrivals_;  // once the load has started
  Time next_ = kNever;
  std::vector<Waiting> waiting_;     // by tag; those in free_ are not waiting
  std::vector<std::uint64_t> free_;  // tags
};

Status check_input(const Knowledge& knowledge, const Scene& scene,
                   const SimulationOptions& options) {
  schedule::PlanInput input;
  input.cluster = scene.cluster;
  input.demands = scene.demands;
  input.profiles = knowledge.profiles.get();
  input.options = scene.options;
  if (Status valid = schedule::validate(input); !valid.ok()) return valid;
  if (!(options.seconds > 0) || options.seconds > kLongest_s) {
    return {StatusCode::invalid,
            "a simulation lasts more than 0 and at most 10000000 seconds; was " +
                std::to_string(options.seconds)};
  }
  if (options.trace == nullptr) return {};
  const auto known = [&scene](const std::string& name) {
    return std::any_of(scene.demands.begin(), scene.demands.end(),
                       [&name](const auto& demand) { return demand.name == name; });
  };
  const auto unknown = [](const std::string& name) {
    return Status(StatusCode::invalid, "the trace names the model '" + name +
                                           "', which has no SLO: add it to the demand, with a rate "
                                           "of 0 if the first plan need not expect it");
  };
  for (const auto& [name, arrivals] : options.trace->arrivals) {
    if (!known(name)) return unknown(name);
  }
  for (const auto& [name, steps] : options.trace->rates) {
    if (!known(name)) return unknown(name);
  }
  return {};
}

Result<std::map<std::string, std::vector<schedule::Device>>> nodes_of(
    const schedule::Cluster& cluster) {
  std::map<std::string, std::vector<schedule::Device>> nodes;
  for (const schedule::Device& device : cluster.devices) {
    std::vector<schedule::Device>& devices = nodes[device.key.node];
    if (device.key.device != devices.size()) {
      return Status(StatusCode::invalid,
                    "node " + device.key.node + ": its devices must be numbered from 0 in order");
    }
    devices.push_back(device);
  }
  return nodes;
}

std::vector<serve::ServedModel> served_models(const std::vector<schedule::ModelDemand>& demands) {
  std::vector<serve::ServedModel> models;
  for (const schedule::ModelDemand& demand : demands) {
    serve::ServedModel& model = models.emplace_back();  // requests without tensors: time is all
    model.name = demand.name;
    model.sha256 = demand.name;
    model.slo_ms = demand.slo_ms;
    model.configured_rate = demand.rate;
    model.max_batch = demand.max_batch;
  }
  return models;
}

serve::FrontendOptions frontend_options(const Knowledge& knowledge, const Scene& scene,
                                        const SimulationOptions& options) {
  serve::FrontendOptions frontend;
  frontend.policy = std::string(knowledge.policy->name());
  frontend.margin = scene.options.margin;
  frontend.headroom = scene.options.headroom;
  frontend.max_devices = scene.options.max_devices;
  frontend.keep_plan = options.keep_plan;
  frontend.period = options.period;
  frontend.control = options.control;
  return frontend;
}

// Runs on until `done`, at most for kPatience.
template <typename Done>
bool run_until(World& world, Done done) {
  const Time given_up = world.now() + kPatience;
  while (!done()) {
    if (world.now() >= given_up) return false;
    world.run_until(world.now() + kLook);
  }
  return true;
}

Status await_first_plan(World& world) {
  const auto refused = [&world] { return !world.faults().empty(); };
  const bool came =
      run_until(world, [&] { return world.frontend().epoch().value > 0 || refused(); });
  if (refused()) {
    return {StatusCode::internal, "the plan breaks the rules (a bug): " + world.faults().front()};
  }
  if (came) return {};
  return {StatusCode::internal, "no plan came into force"};
}

// What was run of each model since the start, beside the demands.
std::vector<Tally::BatchesRun> batches_run(const World& world, const Scene& scene) {
  const serve::FrontendStatus status = world.frontend().status(world.now());
  std::vector<Tally::BatchesRun> run(scene.demands.size());
  for (std::size_t model = 0; model < run.size(); ++model) {
    const auto of = std::find_if(status.models.begin(), status.models.end(), [&](const auto& one) {
      return one.name == scene.demands[model].name;
    });
    if (of == status.models.end()) continue;
    run[model] = {of->statistics.executions, of->statistics.successes(),
                  of->control ? of->control->core_seconds : 0};
  }
  return run;
}

using ControlOfModels = std::map<std::string, serve::ModelControlStatus>;

ControlOfModels control_of_models(const World& world) {
  ControlOfModels control;
  for (const serve::ModelStatus& model : world.frontend().status(world.now()).models) {
    if (model.control) control.emplace(model.name, *model.control);
  }
  return control;
}

void tell_control(const ControlOfModels& before, const ControlOfModels& after, Outcome& outcome) {
  for (ModelOutcome& model : outcome.models) {
    const auto end = after.find(model.name);
    if (end == after.end()) continue;
    const auto found = before.find(model.name);
    const serve::ModelControlStatus start =
        found == before.end() ? serve::ModelControlStatus{} : found->second;
    const serve::ModelControlStatus& now = end->second;
    model.control = {now.periods - start.periods, now.violated_periods - start.violated_periods,
                     now.on_gpu - start.on_gpu, now.on_cpu - start.on_cpu,
                     now.core_seconds - start.core_seconds};
  }
}

void run_rows(World& world, const Scene& scene, Time start, Time end, Duration step, Tally& tally) {
  std::vector<Tally::BatchesRun> before = batches_run(world, scene);
  for (std::size_t row = 0; world.now() < end; ++row) {
    world.run_until(std::min(end, start + step * static_cast<std::int64_t>(row + 1)));
    std::vector<Tally::BatchesRun> now = batches_run(world, scene);
    std::vector<Tally::BatchesRun> in_row(now.size());
    for (std::size_t model = 0; model < now.size(); ++model) {
      in_row[model] = {now[model].batches - before[model].batches,
                       now[model].requests - before[model].requests,
                       now[model].core_seconds - before[model].core_seconds};
    }
    tally.row_ended(row, world.frontend().plan(), in_row);
    before = std::move(now);
  }
}

}  // namespace

Result<Outcome> simulate(const Knowledge& knowledge, const Scene& scene,
                         const SimulationOptions& options) {
  if (Status valid = check_input(knowledge, scene, options); !valid.ok()) return valid;
  const auto nodes = nodes_of(scene.cluster);
  if (!nodes.ok()) return nodes.status();

  Clients clients(scene, options);
  World world(options.world, frontend_options(knowledge, scene, options),
              served_models(scene.demands), knowledge, clients);
  for (const auto& [name, devices] : nodes.value()) world.add_node(name, devices);
  if (Status status = await_first_plan(world); !status.ok()) return status;

  Outcome outcome;
  outcome.schedulable = world.frontend().plan().schedulable();
  outcome.unserved = world.frontend().plan().unserved;
  const Time start = world.now();
  clients.start(start);
  const ControlOfModels control_at_start = control_of_models(world);
  const bool runs = outcome.schedulable || !options.only_schedulable;
  const Time end = runs ? start + from_seconds(options.seconds) : start;
  if (runs && options.series_step) {
    run_rows(world, scene, start, end, *options.series_step, clients.tally());
  } else if (runs) {
    world.run_until(end);
  }
  const ControlOfModels control_at_end = control_of_models(world);
  clients.tally().load_ended();
  outcome.plans = world.plans().size();
  if (runs && !run_until(world, [&] { return clients.outstanding() == 0; })) {
    return Status(StatusCode::internal,
                  std::to_string(clients.outstanding()) + " requests were never answered (a bug)");
  }
  clients.tally().finish(end, outcome);
  tell_control(control_at_start, control_at_end, outcome);
  outcome.events = world.events();
  return outcome;
}

}  // namespace gpulet::simulate
