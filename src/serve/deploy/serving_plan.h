// ServingPlan: the plan in force, the gpulets that serve it, and their routes.
//
// What serves is a mixture of two plans while a rollout lasts, and also afterwards where a plan
// came into force without some of its gpulets, which were not ready in time or ended. They join
// when they are ready. Until then earlier gpulets stand in for them. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/reconcile.h"
#include "gpulet/serve/values/frontend_status.h"
#include "serve/deploy/backend_registry.h"
#include "serve/dispatch/gpulet_route.h"

namespace gpulet::serve {

// Old gpulets that end before what replaces them can load.
class Outages {
 public:
  [[nodiscard]] const std::vector<PlannedOutage>& all() const { return all_; }
  // Those that a rollout will need; replaces the earlier ones.
  void expect(std::vector<PlannedOutage> outages) { all_ = std::move(outages); }
  // Its gpulets end from now on. Replaces the estimate of the same outage.
  void begin(PlannedOutage outage);
  // The gpulet that ends the outage serves, or never will.
  void end(GpuletId until);
  // Forgets the outages that did not begin, and those whose end will not come.
  void drop_others(const BackendRegistry& backends);
  void clear() { all_.clear(); }

 private:
  std::vector<PlannedOutage> all_;
};

class ServingPlan {
 public:
  // The gpulets that have routes, with their parts of the plan.
  using Serving = std::map<GpuletId, schedule::PlannedGpulet>;

  // ---- the plan

  [[nodiscard]] Epoch epoch() const { return epoch_; }  // 0: none yet
  [[nodiscard]] const schedule::Plan& plan() const { return plan_; }
  // Puts a plan in force without a new epoch.
  void set_plan(schedule::Plan plan);
  // The same with a new epoch.
  void advance(schedule::Plan plan);
  // The part of the model's demand that the plan leaves unserved. Null: none.
  [[nodiscard]] const schedule::Unserved* unserved_part(const std::string& model) const;
  // No plan is in force, and nothing serves.
  void clear();

  // ---- what serves

  [[nodiscard]] const Serving& serving() const { return serving_; }
  // Gpulets of the plan in force that do not serve their part of it yet.
  [[nodiscard]] const Serving& missing() const { return missing_; }
  // Those in serving() whose part is none of the plan in force.
  [[nodiscard]] const std::set<GpuletId>& stand_ins() const { return stand_ins_; }
  // Models of gpulets of the plan that ended.
  [[nodiscard]] const std::set<std::string>& lost_models() const { return lost_models_; }
  [[nodiscard]] Outages& outages() { return outages_; }
  [[nodiscard]] const Outages& outages() const { return outages_; }
  // The serving processes in its MIG instance, including itself, and the first of them. One, and no
  // id, without MIG.
  struct Processes {
    std::uint32_t count = 1;
    GpuletId first;
  };
  [[nodiscard]] Processes processes_beside(const schedule::PlannedGpulet& gpulet) const;
  // The gpulet, of an earlier run, serves.
  void adopt(GpuletId id, schedule::PlannedGpulet part);
  // These are about to end. What they stand in for does not follow from that.
  void stop_serving(const std::vector<GpuletId>& ids);
  // Gpulets that do not exist any more do not serve.
  void drop_ended(const BackendRegistry& backends);
  // The plan comes into force as far as it serves: the rest of `wanted` is missing. `lost`: models
  // of gpulets that do not exist.
  void set_missing(const schedule::WantedParts& wanted, std::set<std::string> lost);
  // Follows the change in serving(), missing() and stand_ins().
  void follow(const schedule::MixtureChange& change, const schedule::WantedParts& wanted);
  // The gpulet is gone. Returns whether the plan needed it.
  bool lose(GpuletId id);

  // ---- routes

  // The routes of serving(), as they were last put in force, and how often they were.
  [[nodiscard]] const std::vector<GpuletRoute>& routes() const { return routes_; }
  [[nodiscard]] std::uint64_t routes_revision() const { return routes_revision_; }
  void set_routes(std::vector<GpuletRoute> routes) {
    routes_ = std::move(routes);
    ++routes_revision_;
  }

 private:
  Epoch epoch_;
  schedule::Plan plan_;
  std::unordered_map<std::string, std::size_t> unserved_;  // by model, index into the plan's
  Serving serving_;
  Serving missing_;
  std::set<std::string> lost_models_;
  std::set<GpuletId> stand_ins_;
  Outages outages_;
  std::vector<GpuletRoute> routes_;
  std::uint64_t routes_revision_ = 0;
};

}  // namespace gpulet::serve
