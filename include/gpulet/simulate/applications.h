// Applications of a demand file, for simulations and for plans without a frontend. Pure; any
// thread.
#pragma once

#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/values/application.h"
#include "gpulet/serve/values/served_model.h"

namespace gpulet::simulate {

// What clients send requests to.
struct Load {
  std::vector<schedule::ModelDemand> models;  // of their own clients
  std::vector<config::ApplicationDemand> applications{};
};

struct ServedLoad {
  std::vector<serve::ServedModel> models;
  serve::ApplicationList applications;
};

// The models and applications as a frontend serves them, with objectives divided by
// serve::split_objective(). Models that applications call have tensors of a few bytes, the others
// have none. Fails with invalid if an application calls a model that is not in the load, has the
// name of another entry, or has an objective that no plan can meet.
[[nodiscard]] Result<ServedLoad> served_load(const Load& load, const profile::ProfileSet& profiles);

// The demands to plan for: the models', with the rates and the smallest budgets of the calls of
// applications. In the order of the models. Fails like served_load().
[[nodiscard]] Result<std::vector<schedule::ModelDemand>> planned_demands(
    const Load& load, const profile::ProfileSet& profiles);

}  // namespace gpulet::simulate
