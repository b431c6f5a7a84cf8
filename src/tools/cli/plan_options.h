// The options of commands that plan (`schedule`, `optimize`, `simulate`) and train, and the files
// that these options name. Blocking file I/O; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/simulate/simulation.h"
#include "tools/cli/command.h"

namespace gpulet::tools {

struct PlanOptions {
  std::string cluster;
  std::string profiles;
  std::string demand;
  std::string policy = "auto";
  double budget_ms = 200;
  std::optional<std::uint32_t> max_devices;
  bool no_interference = false;
  // Empty: combined for every profile that knows its interference, otherwise none.
  std::optional<std::string> interference;
  std::optional<double> margin;
  std::string headroom = "poisson";
  bool no_spare = false;
  bool unverified = false;
};

// `options` must outlive the chosen action.
void add_plan_options(CLI::App& command, PlanOptions& options);
// For commands whose plans keep the promise.
void add_verify_option(CLI::App& command, PlanOptions& options);

// May be moved: `input` points to the shared sets.
struct LoadedPlanInput {
  std::shared_ptr<const profile::ProfileSet> profiles;
  profile::InterferenceKind interference_kind = profile::InterferenceKind::none;
  std::shared_ptr<const profile::InterferenceSet> interference;
  std::unique_ptr<schedule::Policy> policy;
  simulate::Load load;        // as in the demand file
  schedule::PlanInput input;  // its demands include the calls of applications
};

// Every failure is bad input; the message names the option, or the file and the place in it.
[[nodiscard]] Result<LoadedPlanInput> load_plan_input(const PlanOptions& options);

// Reads a CSV file of rates. Each of its rows gives the load with these rates; models and
// applications without a column keep their rate. Fails if a column names none of them.
[[nodiscard]] Result<std::vector<simulate::Load>> load_scenarios(const std::string& file,
                                                                 const simulate::Load& load);

// `gpulet train` and gpulet-train both declare these; the command passes them on.
struct TrainOptions {
  std::string cluster;
  std::string profiles;
  std::string demand;
  std::uint64_t episodes = 1500;
  std::uint32_t steps = 200;  // per episode
  double step_seconds = 1;    // simulated
  std::uint64_t steps_per_update = 1;
  std::uint64_t seed = 1;
  double discount = 0.99;
  double first_temperature = 1;
  std::string resume;  // a checkpoint; empty: from the beginning
  std::string out = "placement.policy";
  // For plans only; simulated batches still slow each other down.
  bool no_interference = false;
  std::optional<double> margin;
  std::string headroom = "poisson";
  std::uint32_t threads = 2;
  bool json = false;
};

void add_train_options(CLI::App& command, TrainOptions& options);

// The options as command-line arguments.
[[nodiscard]] std::vector<std::string> train_arguments(const TrainOptions& options);

}  // namespace gpulet::tools
