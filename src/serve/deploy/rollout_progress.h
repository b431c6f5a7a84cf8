// Rollout: a plan that is being brought into force. Pure; one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/reconcile.h"

namespace gpulet::serve {

// A plan that is being brought into force (docs/architecture.md, "The path of a plan"). New gpulets
// are prepared while the old ones serve. Each begins to serve when it is ready and the rules allow
// (schedule/mixture.h); what serves meanwhile is a mixture of both plans. The rollout ends when the
// whole plan serves. It does not wait for gpulets that take long: they join later
// (Deployment::missing). Where a device cannot hold old and new processes, they are replaced in
// place, one gpulet at a time (schedule/replacement.h).
class Rollout {
 public:
  // `new_id` returns ascending ids for the new gpulets. `in_place`: the devices that cannot hold
  // new gpulets beside the old ones. Stops waiting at `now` + `patience`, but see wait_longer().
  Rollout(schedule::Plan plan, schedule::Steps steps, const std::set<schedule::DeviceKey>& in_place,
          const std::function<GpuletId()>& new_id, Time now, Duration patience);

  // Ends the rollout: part_of() is not valid any more.
  [[nodiscard]] schedule::Plan take_plan() { return std::move(plan_); }
  [[nodiscard]] Time began() const { return began_; }
  // The gpulets of the plan, kept and new, with their index in the plan. Without lost ones.
  [[nodiscard]] const std::map<GpuletId, std::size_t>& parts() const { return parts_; }
  // The gpulet's part of the plan. REQUIRES: parts() contains it.
  [[nodiscard]] const schedule::PlannedGpulet& part_of(GpuletId id) const {
    return plan_.gpulets[parts_.at(id)];
  }
  [[nodiscard]] const std::vector<GpuletId>& retire() const { return steps_.retire; }
  [[nodiscard]] bool is_new(GpuletId id) const { return created_.contains(id); }
  // The gpulet is not ready.
  [[nodiscard]] bool awaits(GpuletId id) const {
    return awaited_.contains(id) || late_.contains(id);
  }

  // Takes the lowest new gpulet that is still to be created. REQUIRES: has_to_create().
  [[nodiscard]] GpuletId take_to_create();
  [[nodiscard]] bool has_to_create() const { return !to_create_.empty(); }

  // Waits for a kept gpulet that is still being prepared.
  void await(GpuletId id) { awaited_.insert(id); }
  // Waits until then for this gpulet, if it is later than for the others.
  void wait_longer(GpuletId id, Time until);
  // A kept gpulet that is being prepared for long already is not waited for.
  void expect_late(GpuletId id) { late_.insert(id); }
  void ready(GpuletId id) {
    awaited_.erase(id);
    late_.erase(id);
  }
  // The gpulet ended or will never be ready.
  void lost(GpuletId id);

  // ---- in place

  // The new gpulets whose device has no room for them yet.
  [[nodiscard]] const std::set<GpuletId>& postponed() const { return postponed_; }
  // Old gpulets of the device were told to end; one that has not left it by then does not end.
  void await_leaving(const schedule::DeviceKey& device, Time until);
  // Old gpulets of the device were to have left it.
  [[nodiscard]] bool overdue(const schedule::DeviceKey& device, Time now) const;
  // The gpulet is created now and has until then.
  void create_postponed(GpuletId id, Time until);
  // Gpulets of these models are being prepared that need no other to end, within their time.
  [[nodiscard]] bool awaits_any_of(const std::set<std::string>& models, Time now) const;

  // Nothing is waited for any more, or the time is up.
  [[nodiscard]] bool complete(Time now) const {
    return (awaited_.empty() && postponed_.empty()) || now >= deadline();
  }
  // Those that were not created will not be: they are lost.
  void give_up_postponed();
  // The models of gpulets that the plan has and that do not exist.
  [[nodiscard]] const std::set<std::string>& lost_models() const { return lost_models_; }
  [[nodiscard]] Time deadline() const;

 private:
  schedule::Plan plan_;
  schedule::Steps steps_;
  std::map<GpuletId, std::size_t> parts_;
  std::set<GpuletId> created_;
  std::set<GpuletId> to_create_;
  std::set<GpuletId> awaited_;
  std::set<GpuletId> late_;
  std::set<GpuletId> postponed_;
  std::set<std::string> lost_models_;
  std::map<schedule::DeviceKey, Time> leaving_;
  Time began_;
  Time deadline_;
  std::map<GpuletId, Time> longer_;
};

}  // namespace gpulet::serve
