// The commands that plan without serving: schedule, optimize and transition.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/base/percentile.h"
#include "gpulet/base/text.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/planning/pipeline.h"
#include "gpulet/schedule/check.h"
#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/mig.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/verify/verified_plan.h"
#include "tools/cli/command.h"
#include "tools/cli/parallel_for.h"
#include "tools/cli/plan_options.h"
#include "tools/report/format.h"
#include "tools/report/plan_report.h"
#include "tools/report/terminal.h"

namespace gpulet::tools {
namespace {

using Json = nlohmann::ordered_json;

// ---- making plans

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

Status broken_rules(const std::string& policy, const std::vector<schedule::Violation>& faults) {
  std::string message = "the plan of policy '" + policy + "' breaks the rules (a bug):";
  for (const schedule::Violation& fault : faults) message += "\n  " + to_string(fault);
  return {StatusCode::internal, message};
}

// The plan that the policy makes when it is called directly.
Result<TimedPlan> plan_of(const schedule::Policy& policy, const schedule::PlanInput& input) {
  TimedPlan made;
  const auto begin = Clock::now();
  made.plan = policy.plan(input);
  made.microseconds = microseconds_since(begin);
  const std::vector<schedule::Violation> faults = schedule::check(made.plan, input);
  if (!faults.empty()) return broken_rules(made.plan.policy, faults);
  return made;
}

// ---- schedule

// The plan that a frontend makes for the same files. Without `scale`, the plan may use every
// device.
Result<TimedPlan> make_plan(const schedule::Policy& policy, const LoadedPlanInput& loaded,
                            bool scale) {
  planning::PlanRequest request;
  request.cluster = loaded.input.cluster;
  request.demands = loaded.input.demands;
  request.options = loaded.input.options;
  request.profiles = loaded.profiles;
  request.interference = loaded.interference;
  request.scale = scale;
  const auto begin = Clock::now();
  planning::PlanResult made = planning::make_plan(request, policy);
  const double microseconds = microseconds_since(begin);
  if (!made.faults.empty()) return broken_rules(made.plan.policy, made.faults);
  return TimedPlan{std::move(made.plan), microseconds};
}

struct ScheduleOptions {
  PlanOptions plan;
  std::string scenarios;
  bool json = false;
};

int plan_once(const ScheduleOptions& options, const LoadedPlanInput& loaded) {
  Result<TimedPlan> made = make_plan(*loaded.policy, loaded, true);
  if (!made.ok()) return run_failed(made.status());
  const schedule::Plan& plan = made.value().plan;
  made.value().predicted = loaded.input.options.verify
                               ? verify::verified_violations(plan, loaded.input)
                               : schedule::predict_violations(plan, loaded.input);
  print_plan(made.value(), loaded.input.cluster.devices.size(), options.json);
  return plan.schedulable() ? kSucceeded : kRunFailed;
}

int plan_scenarios(const ScheduleOptions& options, LoadedPlanInput& loaded) {
  const schedule::Policy& policy = *loaded.policy;
  schedule::PlanInput& input = loaded.input;
  const auto scenarios = load_scenarios(options.scenarios, loaded.load);
  if (!scenarios.ok()) return bad_input(scenarios.status());
  std::vector<bool> rows;
  std::vector<double> times;
  for (const simulate::Load& row : scenarios.value()) {
    const std::string where = fmt::format("{}: row {}", options.scenarios, rows.size() + 1);
    auto demands = simulate::planned_demands(row, *input.profiles);
    if (!demands.ok()) return bad_input(demands.status().within(where));
    input.demands = std::move(demands).value();
    if (Status status = schedule::validate(input); !status.ok())
      return bad_input(status.within(where));
    const Result<TimedPlan> made = make_plan(policy, loaded, false);
    if (!made.ok()) return run_failed(made.status().within(where));
    rows.push_back(made.value().plan.schedulable());
    times.push_back(made.value().microseconds);
  }
  const auto schedulable = std::count(rows.begin(), rows.end(), true);
  const double p50_us = percentile(times, 50).value_or(0);
  const double p99_us = percentile(times, 99).value_or(0);
  if (options.json) {
    std::cout << json_page(
        Json{{"policy", policy.name()},
             {"scenarios", rows.size()},
             {"schedulable", schedulable},
             {"plan_time_us", {{"p50", std::llround(p50_us)}, {"p99", std::llround(p99_us)}}},
             {"rows", rows}});
  } else {
    std::cout << policy.name() << ": " << schedulable << " of " << rows.size()
              << " scenarios are schedulable, planned in " << fixed(p50_us, 0) << " us (p50) and "
              << fixed(p99_us, 0) << " us (p99) each\n";
  }
  return kSucceeded;
}

int plan(const ScheduleOptions& options) {
  Result<LoadedPlanInput> loaded = load_plan_input(options.plan);
  if (!loaded.ok()) return bad_input(loaded.status());
  return options.scenarios.empty() ? plan_once(options, loaded.value())
                                   : plan_scenarios(options, loaded.value());
}

// ---- optimize

constexpr std::string_view kTwoPhase = "mig-two-phase";

struct OptimizeOptions {
  PlanOptions plan;
  double seconds = 60;
  std::uint64_t seed = 1;
  std::uint32_t threads = std::max(1U, std::thread::hardware_concurrency());
  bool json = false;
};

struct SearchResult {
  schedule::mig::Progress last;
  std::string stopped_by;  // empty: the search ended by itself
};

// Shows the progress of a search and stops it at the time limit or after a signal.
class SearchProgress {
 public:
  SearchProgress(double seconds, SearchResult* search) : seconds_(seconds), search_(search) {}

  bool go_on(const schedule::mig::Progress& progress) {
    search_->last = progress;
    const double passed = std::chrono::duration<double>(Clock::now() - began_).count();
    const double gap = static_cast<double>(progress.devices) / progress.lower_bound - 1;
    line_.show(
        fmt::format("round {}: {} devices, at least {} ({} % more), {} of {} s; Ctrl-C stops",
                    progress.round, progress.devices, fixed(progress.lower_bound, 1),
                    fixed(gap * 100, 2), fixed(passed, 1), shortest(seconds_, 1)));
    if (passed >= seconds_) search_->stopped_by = "the time limit";
    if (interrupt_.take()) search_->stopped_by = "an interrupt";
    return search_->stopped_by.empty();
  }

 private:
  double seconds_;
  SearchResult* search_;
  Clock::time_point began_ = Clock::now();
  ProgressLine line_;
  SignalWatch interrupt_{SIGINT, SIGTERM};
};

void print_search(const SearchResult& search, std::ostream& out) {
  if (search.last.devices == 0) return;
  out << "search: " << search.last.round << " rounds, "
      << (search.stopped_by.empty() ? "until no further gain" : "until " + search.stopped_by)
      << "; with one model in each instance, at least " << fixed(search.last.lower_bound, 1)
      << " devices are needed\n";
}

int optimize(const OptimizeOptions& options) {
  Result<LoadedPlanInput> loaded = load_plan_input(options.plan);
  if (!loaded.ok()) return bad_input(loaded.status());
  const schedule::PlanInput& input = loaded.value().input;
  SearchResult search;
  std::optional<SearchProgress> progress;
  if (options.plan.policy == kTwoPhase) {
    progress.emplace(options.seconds, &search);
    schedule::mig::TwoPhaseOptions two_phase;
    two_phase.seed = options.seed;
    two_phase.go_on = [&](const schedule::mig::Progress& reached) {
      return progress->go_on(reached);
    };
    two_phase.for_each = std::bind_front(parallel_for, options.threads);
    loaded.value().policy = schedule::make_mig_two_phase(std::move(two_phase));
  }
  const Result<TimedPlan> made = plan_of(*loaded.value().policy, input);
  progress.reset();
  if (!made.ok()) return run_failed(made.status());
  print_layouts(made.value(), input.cluster.devices.size(), options.json);
  print_search(search, options.json ? std::cerr : std::cout);
  return kSucceeded;
}

// ---- transition

struct TransitionOptions {
  std::string from;
  std::string to;
  std::string cluster;
  std::string picture;
  bool json = false;
};

// The devices of the plans that are divided by MIG. The size of an instance determines the kind of
// device.
Result<schedule::Cluster> cluster_of(const schedule::Plan& from, const schedule::Plan& to) {
  std::map<schedule::DeviceKey, partition::MigGeometry> found;
  for (const schedule::Plan* plan : {&from, &to}) {
    for (const schedule::PlannedGpulet& gpulet : plan->gpulets) {
      if (!gpulet.instance) continue;
      const auto names = {"a100-80", "a30"};
      const auto fits = std::find_if(names.begin(), names.end(), [&](const char* name) {
        const auto geometry = partition::MigGeometry::of(name).value();
        return geometry.slices_of(gpulet.size) == gpulet.instance->slices;
      });
      if (fits == names.end()) {
        return Status(
            StatusCode::invalid,
            fmt::format("no MIG device has a {} of {} %; give the cluster file with --cluster",
                        partition::mig_profile_name(gpulet.instance->slices), gpulet.size.percent));
      }
      found.emplace(gpulet.device, partition::MigGeometry::of(*fits).value());
    }
  }
  schedule::Cluster cluster;
  for (const auto& [key, geometry] : found) {
    schedule::Device& device = cluster.devices.emplace_back();
    device.key = key;
    device.mig = geometry;
  }
  return cluster;
}

Result<schedule::Cluster> load_devices(const TransitionOptions& options, const schedule::Plan& from,
                                       const schedule::Plan& to) {
  if (options.cluster.empty()) return cluster_of(from, to);
  GPULET_TRY(const auto nodes, config::load_cluster(options.cluster));
  return schedule::cluster_from(nodes);
}

int draw(const schedule::StagedPlan& staged, const std::string& path) {
  std::ofstream file(path, std::ios::trunc);
  file << draw_transition(staged.transition, staged.task) << std::flush;
  if (file) return kSucceeded;
  return run_failed({StatusCode::unavailable, "--picture: " + path + " cannot be written"});
}

int transition(const TransitionOptions& options) {
  const Result<schedule::Plan> from = read_plan(options.from);
  if (!from.ok()) return bad_input(from.status());
  const Result<schedule::Plan> to = read_plan(options.to);
  if (!to.ok()) return bad_input(to.status());
  const Result<schedule::Cluster> cluster = load_devices(options, from.value(), to.value());
  if (!cluster.ok()) return bad_input(cluster.status());
  const auto staged = schedule::stage_plan(from.value(), to.value(), cluster.value());
  if (!staged.ok()) {
    const bool full = staged.status().code() == StatusCode::unavailable;
    return full ? run_failed(staged.status()) : bad_input(staged.status());
  }
  if (options.json) {
    std::cout << json_page(transition_json(staged.value(), cluster.value()));
  } else {
    std::cout << transition_text(staged.value(), cluster.value());
  }
  return options.picture.empty() ? kSucceeded : draw(staged.value(), options.picture);
}

}  // namespace

void add_schedule_command(CLI::App& app, Action& chosen) {
  const auto [command, options] = add_command(
      app, chosen, "schedule",
      "plan the gpulets for a demand without serving it; exits with 1 if the plan does not cover "
      "the demand",
      plan);
  add_plan_options(*command, options->plan);
  add_verify_option(*command, options->plan);
  command->add_option(
      "--scenarios", options->scenarios,
      "CSV of rates; prints how many of its rows are schedulable; a model or application without "
      "a column keeps its rate from the demand file");
  command->add_flag("--json", options->json, "print one JSON document");
}

void add_optimize_command(CLI::App& app, Action& chosen) {
  const auto [command, options] =
      add_command(app, chosen, "optimize",
                  "search for the plan that needs the fewest devices divided by MIG", optimize);
  options->plan.policy = kTwoPhase;
  add_plan_options(*command, options->plan);
  add_checked(*command, "--seconds", options->seconds, "seconds after which the search stops",
              number_above(0, 1e9));
  add_checked(*command, "--seed", options->seed, "random seed; the same seed finds the same plan",
              natural_number());
  add_checked(*command, "--threads", options->threads,
              "threads of the search; their number does not change the result",
              whole_number_within(1, 1024));
  command->add_flag("--json", options->json, "print the plan as one JSON document");
}

void add_transition_command(CLI::App& app, Action& chosen) {
  const auto [command, options] = add_command(
      app, chosen, "transition",
      "plan the transition from one plan to another on devices divided by MIG", transition);
  command->add_option("--from", options->from, "current plan, as printed by `schedule --json`")
      ->required();
  command->add_option("--to", options->to, "plan to reach")->required();
  command->add_option("--cluster", options->cluster,
                      "cluster file, whose other devices the transition may use meanwhile "
                      "(default: only the devices of the plans)");
  command->add_option("--picture", options->picture,
                      "draw the devices during the transition (SVG)");
  command->add_flag("--json", options->json, "print one JSON document");
}

}  // namespace gpulet::tools
