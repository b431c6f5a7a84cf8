// Rollout: a plan on its way into force. New gpulets are prepared while the old ones serve; when
// all are ready, the routes move in one step and what is left over is retired
// (docs/architecture.md, "Reorganisation"). Pure value; one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/core/time.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/reconcile.h"

namespace gpulet::serve {

class Rollout {
 public:
  // `new_id` numbers the gpulets that must be created, upwards. Gives up waiting at `deadline`.
  Rollout(schedule::Plan plan, schedule::Steps steps, const std::function<GpuletId()>& new_id,
          Time deadline);

  [[nodiscard]] const schedule::Plan& plan() const { return plan_; }
  // Which gpulet serves which part of the plan; kept ones and new ones. Lost ones are absent.
  [[nodiscard]] const std::map<GpuletId, std::size_t>& parts() const { return parts_; }
  // The new ones, as they must be created, in the plan's order and ascending.
  [[nodiscard]] const std::vector<GpuletId>& created() const { return created_; }
  [[nodiscard]] const std::vector<GpuletId>& retire() const { return steps_.retire; }
  [[nodiscard]] bool awaits(GpuletId id) const { return awaited_.contains(id); }
  [[nodiscard]] bool is_new(GpuletId id) const;

  // A kept gpulet that is still being prepared is waited for as well.
  void await(GpuletId id) { awaited_.insert(id); }
  void ready(GpuletId id) { awaited_.erase(id); }
  // It will never be ready, or is gone.
  void lost(GpuletId id);

  [[nodiscard]] bool complete(Time now) const { return awaited_.empty() || now >= deadline_; }
  // Those still awaited are given up.
  std::vector<GpuletId> give_up_awaited();
  [[nodiscard]] Time deadline() const { return deadline_; }

 private:
  schedule::Plan plan_;
  schedule::Steps steps_;
  std::map<GpuletId, std::size_t> parts_;
  std::vector<GpuletId> created_;
  std::set<GpuletId> awaited_;
  Time deadline_;
};

}  // namespace gpulet::serve
