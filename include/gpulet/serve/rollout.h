// Rollout: a plan on its way into force. New gpulets are prepared while the old ones serve; when
// all are ready, the routes move in one step and what is left over is retired
// (docs/architecture.md, "Reorganisation"). On a device whose memory cannot hold new beside old,
// gpulets are replaced in place: once all others are ready, the old ones there go, and only then
// are the new ones made. Pure value; one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/core/time.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/reconcile.h"

namespace gpulet::serve {

class Rollout {
 public:
  // `new_id` numbers the gpulets that must be created, upwards. `in_place`: the devices that cannot
  // hold new beside old. Gives up waiting `timeout` after `now`.
  Rollout(schedule::Plan plan, schedule::Steps steps, std::set<schedule::DeviceKey> in_place,
          const std::function<GpuletId()>& new_id, Time now, Duration timeout);

  // Leaves the parts without theirs: the roll-out is over.
  [[nodiscard]] schedule::Plan take_plan() { return std::move(plan_); }
  [[nodiscard]] const std::set<schedule::DeviceKey>& in_place() const { return in_place_; }
  [[nodiscard]] Time began() const { return began_; }
  // Which gpulet serves which part of the plan; kept ones and new ones. Lost ones are absent.
  [[nodiscard]] const std::map<GpuletId, std::size_t>& parts() const { return parts_; }
  // Part of the plan that a gpulet serves. REQUIRES: parts() has it.
  [[nodiscard]] const schedule::PlannedGpulet& part_of(GpuletId id) const {
    return plan_.gpulets[parts_.at(id)];
  }
  [[nodiscard]] const std::vector<GpuletId>& retire() const { return steps_.retire; }
  [[nodiscard]] bool is_new(GpuletId id) const { return created_.contains(id); }
  [[nodiscard]] bool awaits(GpuletId id) const { return awaited_.contains(id); }

  // The new gpulets that are to be made now, ascending: the next one, each told once. REQUIRES:
  // has_shadows().
  [[nodiscard]] GpuletId take_shadow();
  [[nodiscard]] bool has_shadows() const { return !shadows_.empty(); }
  // The new gpulets that wait for room on their device, ascending.
  [[nodiscard]] const std::set<GpuletId>& postponed() const { return postponed_; }

  // A kept gpulet that is still being prepared is waited for as well.
  void await(GpuletId id) { awaited_.insert(id); }
  void ready(GpuletId id) { awaited_.erase(id); }
  // It will never be ready, or is gone.
  void lost(GpuletId id);

  // All that was made is ready, or the time is up.
  [[nodiscard]] bool prepared(Time now) const { return awaited_.empty() || now >= deadline_; }
  // Prepared, and the old gpulets of the devices without room have not been told to go yet.
  [[nodiscard]] bool must_clear(Time now) const {
    return !clearing_ && !postponed_.empty() && prepared(now);
  }
  // They were told to go; what is postponed has `timeout` from now on.
  void clear(Time now, Duration timeout);
  [[nodiscard]] bool clearing() const { return clearing_; }
  // There is room for it now: it is being made, and waited for.
  void make(GpuletId postponed);
  // Nothing more is waited for, or the time is up.
  [[nodiscard]] bool complete(Time now) const {
    return (awaited_.empty() && postponed_.empty()) || (now >= deadline_ && !must_clear(now));
  }
  // Those still awaited are given up.
  std::vector<GpuletId> give_up_awaited();
  [[nodiscard]] Time deadline() const { return deadline_; }

 private:
  schedule::Plan plan_;
  schedule::Steps steps_;
  std::set<schedule::DeviceKey> in_place_;
  std::map<GpuletId, std::size_t> parts_;
  std::set<GpuletId> created_;
  std::set<GpuletId> shadows_;  // of these, those that nobody has been told to make yet
  std::set<GpuletId> awaited_;
  std::set<GpuletId> postponed_;
  bool clearing_ = false;
  Time began_;
  Time deadline_;
};

}  // namespace gpulet::serve
