// The options that every command takes which plans (`schedule`, `simulate`), and what they name,
// read and validated. Blocking file I/O; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/config/cluster_config.h"
#include "gpulet/core/status.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/policy.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own
class App;
}

namespace gpulet::tools {

struct PlanFlags {
  std::string cluster;
  std::string profiles;
  std::string demand;
  std::string policy = "elastic";
  std::optional<std::uint32_t> max_devices;
  bool no_interference = false;
  // Empty: learned where every profile in use holds a learned fit, else none.
  std::optional<std::string> interference;
  double margin = 1.05;
  std::string headroom = "poisson";
};

void add_plan_flags(CLI::App& command, PlanFlags& flags);

// What the flags name. `input` points into the sets, which therefore stay where they are; moving
// the whole is fine.
struct LoadedPlanInput {
  std::shared_ptr<const profile::ProfileSet> profiles;
  profile::InterferenceKind interference_kind = profile::InterferenceKind::none;
  std::shared_ptr<const profile::InterferenceSet> interference;
  std::unique_ptr<schedule::Policy> policy;
  schedule::PlanInput input;
};

// Fails with what is bad input: the message names the option, or the file and the place in it.
[[nodiscard]] Result<LoadedPlanInput> load(const PlanFlags& flags);

// Rate vectors of a CSV file, each joined to the demands: models without a column keep their rate.
struct LoadedScenarios {
  std::vector<std::vector<schedule::ModelDemand>> rows;
};
// Fails where a column names a model that `demands` lacks.
[[nodiscard]] Result<LoadedScenarios> load_scenarios(
    const std::string& file, const std::vector<schedule::ModelDemand>& demands);

}  // namespace gpulet::tools
