#include "gpulet/simulate/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "simulate/clients.h"
#include "simulate/experienced.h"
#include "simulate/virtual_cluster.h"

namespace gpulet::simulate {
namespace {

constexpr std::uint32_t kMostFrontends = 1000;
constexpr double kLongestSeconds = 1e7;  // four months, far from an overflow of nanoseconds

// More virtual time than the first plan, or the last responses, can take without a bug.
constexpr Duration kTimeout = std::chrono::minutes(30);
constexpr Duration kPollInterval = std::chrono::milliseconds(50);

Status check_input(const Knowledge& knowledge, const SimulationInput& input,
                   const SimulationOptions& options) {
  schedule::PlanInput plan_input;
  plan_input.cluster = input.cluster;
  plan_input.demands = input.demands;
  plan_input.profiles = knowledge.profiles.get();
  plan_input.options = input.options;
  if (Status valid = schedule::validate(plan_input); !valid.ok()) return valid;
  if (!(options.seconds > 0) || options.seconds > kLongestSeconds) {
    return {StatusCode::invalid,
            fmt::format("the length of a simulation must be above 0 and at most 10000000 seconds; "
                        "was {:f}",
                        options.seconds)};
  }
  if (options.frontends < 1 || options.frontends > kMostFrontends) {
    return {StatusCode::invalid, fmt::format("a simulation has 1 to {} frontends; was {}",
                                             kMostFrontends, options.frontends)};
  }
  if (options.leave_waiting && (options.frontends > 1 || !input.applications.empty())) {
    return {StatusCode::invalid,
            "requests that wait can only be left by a simulation with one frontend and without "
            "applications"};
  }
  for (const WaitingRequest& waiting : options.waiting) {
    if (waiting.model >= input.demands.size())
      return {StatusCode::invalid, "a waiting request has no model: the index is out of range"};
  }
  if (options.trace == nullptr) return {};
  const auto known = [&input](const std::string& name) {
    const auto named = [&name](const auto& demand) { return demand.name == name; };
    return std::any_of(input.demands.begin(), input.demands.end(), named) ||
           std::any_of(input.applications.begin(), input.applications.end(), named);
  };
  const auto unknown = [](const std::string& name) {
    return Status(StatusCode::invalid,
                  fmt::format("the trace names '{}', a model or application that the demand lacks; "
                              "add it there, with a rate of 0 if the first plan need not serve it",
                              name));
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
      return Status(
          StatusCode::invalid,
          fmt::format("node {}: devices must be numbered from 0 in order", device.key.node));
    }
    devices.push_back(device);
  }
  return nodes;
}

serve::FrontendOptions frontend_options(const Knowledge& knowledge, const SimulationInput& input,
                                        const SimulationOptions& options) {
  serve::FrontendOptions frontend;
  frontend.policy = std::string(knowledge.policy->name());
  frontend.margin = input.options.margin;
  frontend.headroom = input.options.headroom;
  frontend.plan_budget_ms = input.options.budget_ms;
  frontend.max_devices = input.options.max_devices;
  frontend.use_spare = input.options.use_spare;
  frontend.verify = input.options.verify;
  frontend.keep_plan = options.keep_plan;
  frontend.period = options.period;
  frontend.control = options.control;
  frontend.clustered = options.frontends > 1;
  return frontend;
}

// Further frontends of the cluster; the first one leads.
void add_followers(VirtualCluster& cluster, const serve::FrontendOptions& like,
                   std::uint32_t frontends) {
  if (frontends == 1) return;
  serve::FrontendOptions options = like;
  for (std::uint32_t i = 1; i < frontends; ++i) {
    options.run = i + 1;
    cluster.add_frontend(options);
  }
  cluster.inject(serve::LeadershipWon{Term{1}}, 0);
  for (std::uint32_t i = 1; i < frontends; ++i)
    cluster.inject(serve::LeadershipLost{"f0", "leader"}, i);
  cluster.use_all_entries();
}

// Runs until done(), at most for kTimeout. Returns whether done() came true.
template <typename Done>
bool run_until(VirtualCluster& cluster, Done done) {
  const Time deadline = cluster.now() + kTimeout;
  while (!done()) {
    if (cluster.now() >= deadline) return false;
    cluster.run_until(cluster.now() + kPollInterval);
  }
  return true;
}

// The plan in force does not wait for late gpulets.
bool has_all_gpulets(VirtualCluster& cluster) {
  const auto gpulets = cluster.frontend().status(cluster.now()).gpulets;
  return std::none_of(gpulets.begin(), gpulets.end(), [](const serve::GpuletStatus& one) {
    return one.gpulet.state == GpuletState::preparing;
  });
}

// Returns once the first plan is in force with all of its gpulets.
Status await_first_plan(VirtualCluster& cluster) {
  const auto refused = [&cluster] { return !cluster.told().faults.empty(); };
  const auto in_force = [&cluster] { return cluster.frontend().epoch().value > 0; };
  run_until(cluster, [&] { return refused() || (in_force() && has_all_gpulets(cluster)); });
  const bool came = in_force();
  if (refused()) {
    return {StatusCode::internal, "the plan violates the rules of check(), which is a bug: " +
                                      to_string(cluster.told().faults.front())};
  }
  if (came) return {};
  return {StatusCode::internal, "no plan came into force, which is a bug"};
}

// The totals of each model since the start, in the order of the demands.
std::vector<OutcomeRecorder::BatchesRun> batches_run(const VirtualCluster& cluster,
                                                     const SimulationInput& input) {
  const serve::FrontendStatus status = cluster.frontend().status(cluster.now());
  std::vector<OutcomeRecorder::BatchesRun> run(input.demands.size());
  for (std::size_t model = 0; model < run.size(); ++model) {
    const auto of = std::find_if(status.models.begin(), status.models.end(), [&](const auto& one) {
      return one.name == input.demands[model].name;
    });
    if (of == status.models.end()) continue;
    run[model] = {of->statistics.executions, of->statistics.successes(),
                  of->control ? of->control->core_seconds : 0};
  }
  return run;
}

// The requests of each model in the frontend's queue, in the order of the demands.
std::vector<std::size_t> queued_at(const VirtualCluster& cluster, const SimulationInput& input) {
  const serve::FrontendStatus status = cluster.frontend().status(cluster.now());
  std::vector<std::size_t> queued(input.demands.size());
  for (const serve::ModelStatus& model : status.models) {
    for (std::size_t at = 0; at < queued.size(); ++at) {
      if (input.demands[at].name == model.name) queued[at] = model.queued;
    }
  }
  return queued;
}

double mean_batch(const std::vector<OutcomeRecorder::BatchesRun>& run) {
  double batches = 0;
  double requests = 0;
  for (const OutcomeRecorder::BatchesRun& one : run) {
    batches += static_cast<double>(one.batches);
    requests += static_cast<double>(one.requests);
  }
  return batches > 0 ? requests / batches : 0;
}

using ControlOfModels = std::map<std::string, serve::ModelControlStatus>;

ControlOfModels control_of_models(const VirtualCluster& cluster) {
  ControlOfModels control;
  for (const serve::ModelStatus& model : cluster.frontend().status(cluster.now()).models) {
    if (model.control) control.emplace(model.name, *model.control);
  }
  return control;
}

void write_control(const ControlOfModels& before, const ControlOfModels& after, Outcome& outcome) {
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
    outcome.core_seconds += model.control->core_seconds;
  }
}

void run_rows(VirtualCluster& cluster, const Knowledge& knowledge, const SimulationInput& input,
              Time start, Time end, Duration step, OutcomeRecorder& recorder) {
  std::vector<OutcomeRecorder::BatchesRun> before = batches_run(cluster, input);
  for (std::size_t row = 0; cluster.now() < end; ++row) {
    cluster.run_until(std::min(end, start + step * static_cast<std::int64_t>(row + 1)));
    std::vector<OutcomeRecorder::BatchesRun> now = batches_run(cluster, input);
    std::vector<OutcomeRecorder::BatchesRun> in_row(now.size());
    for (std::size_t model = 0; model < now.size(); ++model) {
      in_row[model] = {now[model].batches - before[model].batches,
                       now[model].requests - before[model].requests,
                       now[model].core_seconds - before[model].core_seconds};
    }
    recorder.row_ended(row, as_experienced(cluster.frontend().plan(), input.cluster, knowledge),
                       in_row);
    before = std::move(now);
  }
}

}  // namespace

std::shared_ptr<const profile::InterferenceSet> simulated_interference(
    const profile::ProfileSet& profiles) {
  profile::InterferenceSet known;
  for (const auto& [name, profile] : profiles) {
    Result<profile::InterferenceModel> model =
        profile::InterferenceModel::create(profile, profile::InterferenceKind::combined);
    if (model.ok()) known.emplace(name, std::move(model).value());
  }
  return std::make_shared<const profile::InterferenceSet>(std::move(known));
}

Result<Outcome> simulate(const Knowledge& knowledge, const SimulationInput& input,
                         const SimulationOptions& options) {
  if (Status valid = check_input(knowledge, input, options); !valid.ok()) return valid;
  GPULET_TRY(const auto nodes, nodes_of(input.cluster));

  GPULET_TRY(ServedLoad load,
             served_load({input.demands, input.applications}, *knowledge.profiles));

  SimulatedClients clients(input, load, options);
  VirtualTimings timings = options.timings;
  timings.batch_seed = stream_seed(options.seed, "batches");
  timings.batches_at_once = options.control.requests_at_once;
  const serve::FrontendOptions frontend = frontend_options(knowledge, input, options);
  Mishaps none;
  VirtualCluster cluster(timings, frontend, std::move(load), knowledge, clients, none);
  add_followers(cluster, frontend, options.frontends);
  for (const auto& [name, devices] : nodes) cluster.add_node(name, devices);
  if (Status status = await_first_plan(cluster); !status.ok()) return status;

  Outcome outcome;
  outcome.first_plan = cluster.frontend().plan();
  const Time start = cluster.now();
  clients.start(start);
  const ControlOfModels control_at_start = control_of_models(cluster);
  const double busy_at_start = cluster.core_seconds_busy();
  const bool runs = outcome.first_plan.schedulable() || !options.only_schedulable;
  const Time end = runs ? start + from_seconds(options.seconds) : start;
  if (runs && options.series_step) {
    run_rows(cluster, knowledge, input, start, end, *options.series_step, clients.recorder());
  } else if (runs) {
    cluster.run_until(end);
  }
  outcome.mean_batch = mean_batch(batches_run(cluster, input));
  const ControlOfModels control_at_end = control_of_models(cluster);
  const double busy_at_end = cluster.core_seconds_busy();
  clients.recorder().load_ended();
  if (options.leave_waiting) outcome.left = clients.leave(queued_at(cluster, input), cluster.now());
  outcome.plans = cluster.told().plans.size();
  if (runs && !run_until(cluster, [&] { return clients.outstanding() == 0; })) {
    return Status(StatusCode::internal, fmt::format("{} requests got no response, which is a bug",
                                                    clients.outstanding()));
  }
  clients.recorder().finish(end, outcome);
  write_control(control_at_start, control_at_end, outcome);
  outcome.core_seconds_busy = busy_at_end - busy_at_start;
  outcome.events = cluster.events();
  return outcome;
}

}  // namespace gpulet::simulate
