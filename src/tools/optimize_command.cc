// gpulet optimize: a plan that took as much time as it was given, for clusters whose division is
// changed a few times a day.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/mig/optimise.h"
#include "gpulet/schedule/mig_policies.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/on_threads.h"
#include "tools/plan_options.h"
#include "tools/plan_output.h"
#include "tools/progress_line.h"
#include "tools/signal_watch.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kTwoPhase = "mig-two-phase";

struct OptimizeOptions {
  PlanFlags plan;
  double seconds = 60;
  std::uint64_t seed = 1;
  std::uint32_t threads = std::max(1U, std::thread::hardware_concurrency());
  bool json = false;
};

// How the search went.
struct Search {
  mig::Progress last;
  std::string stopped_by;  // empty: it ended by itself
};

// Until the time is over, or the user has enough.
class Watch {
 public:
  Watch(double seconds, Search* search) : seconds_(seconds), search_(search) {}

  bool go_on(const mig::Progress& progress) {
    search_->last = progress;
    const double passed = std::chrono::duration<double>(Clock::now() - began_).count();
    const double gap = static_cast<double>(progress.devices) / progress.lower_bound - 1;
    line_.show("round " + std::to_string(progress.round) + ": " + std::to_string(progress.devices) +
               " devices, at least " + fixed(progress.lower_bound, 1) + " (" + fixed(gap * 100, 2) +
               " % more), " + fixed(passed, 1) + " of " + shortest(seconds_, 1) +
               " s; Ctrl-C ends it");
    if (passed >= seconds_) search_->stopped_by = "the time was over";
    if (interrupt_.take()) search_->stopped_by = "it was interrupted";
    return search_->stopped_by.empty();
  }

 private:
  double seconds_;
  Search* search_;
  Clock::time_point began_ = Clock::now();
  ProgressLine line_;
  SignalWatch interrupt_{SIGINT, SIGTERM};
};

void print_search(const Search& search, std::ostream& out) {
  if (search.last.devices == 0) return;
  out << "search: " << search.last.round << " rounds, "
      << (search.stopped_by.empty() ? "until no more was to be gained"
                                    : "until " + search.stopped_by)
      << "; with one model in each instance, at least " << fixed(search.last.lower_bound, 1)
      << " devices are needed\n";
}

int optimize(const OptimizeOptions& options) {
  Result<LoadedPlanInput> loaded = load(options.plan);
  if (!loaded.ok()) return bad_input(loaded.status());
  const schedule::PlanInput& input = loaded.value().input;
  Search search;
  std::optional<Watch> watch;
  if (options.plan.policy == kTwoPhase) {
    watch.emplace(options.seconds, &search);
    mig::TwoPhaseOptions two_phase;
    two_phase.seed = options.seed;
    two_phase.go_on = [&](const mig::Progress& progress) { return watch->go_on(progress); };
    two_phase.for_each = std::bind_front(on_threads, options.threads);
    loaded.value().policy = schedule::make_mig_two_phase(std::move(two_phase));
  }
  const Result<TimedPlan> made = make_plan(*loaded.value().policy, input);
  watch.reset();
  if (!made.ok()) return run_failed(made.status());
  print_fillings(made.value(), input.cluster.devices.size(), options.json);
  print_search(search, options.json ? std::cerr : std::cout);
  return kSucceeded;
}

}  // namespace

void add_optimize_command(CLI::App& app, Run& chosen) {
  auto options = std::make_shared<OptimizeOptions>();
  options->plan.policy = kTwoPhase;
  CLI::App* const command = app.add_subcommand(
      "optimize", "search for the plan with the fewest devices that are divided by MIG");
  add_plan_flags(*command, options->plan);
  command->add_option("--seconds", options->seconds, "search no longer than this many seconds")
      ->check(number_above(0, 1e9))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of the search: the same seed finds the same plan")
      ->check(natural_number())
      ->capture_default_str();
  command
      ->add_option("--threads", options->threads, "that search; they do not change what is found")
      ->capture_default_str()
      ->check(whole_number_within(1, 1024));
  command->add_flag("--json", options->json, "print the plan as one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return optimize(*options); }; });
}

}  // namespace gpulet::tools
