// Agenda: the models and gpulets that the next pump of the Dispatcher considers anew, and when it
// is due without a further event. Pure; one thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "serve/dispatch/gpulet_route.h"

namespace gpulet::serve {

class Agenda {
 public:
  // What the agenda knows of a gpulet. Each gpulet keeps its own, which ends with it.
  struct GpuletMark {
    bool due = false;
    Time wake = kNever;  // its earliest entry
  };

  void add(ModelIndex model);
  void forget(ModelIndex model);

  // ---- what to consider

  // A request arrived for the model, or a gpulet made room.
  void touch(ModelIndex model);
  // A batch of the gpulet ended, or one may leave now.
  void list_due(GpuletId id, GpuletMark& mark);
  // Something changed for instances.
  void touch_instances() { instances_due_ = true; }
  void wake(ModelIndex model, Time at);
  void wake(GpuletId id, GpuletMark& mark, Time at);

  // ---- a pump

  // Lists what has come due. `mark_of(gpulet)`: its mark; null: it is gone.
  template <typename MarkOf>
  void advance(Time now, const MarkOf& mark_of) {
    wake_models(now);
    while (!gpulet_wakes_.empty() && gpulet_wakes_.top().first <= now) {
      const auto [time, id] = gpulet_wakes_.top();
      gpulet_wakes_.pop();
      GpuletMark* const mark = mark_of(id);
      if (mark == nullptr || mark->wake != time) continue;
      mark->wake = kNever;
      list_due(id, *mark);
    }
  }
  // Models come before gpulets: call take_gpulet() only where no model is left.
  [[nodiscard]] std::optional<ModelIndex> take_model();
  [[nodiscard]] std::optional<GpuletId> take_gpulet();
  [[nodiscard]] bool take_instances() { return std::exchange(instances_due_, false); }

  // kNever: never.
  [[nodiscard]] Time next_wake() const;

 private:
  template <typename Of>
  using Wakes =
      std::priority_queue<std::pair<Time, Of>, std::vector<std::pair<Time, Of>>, std::greater<>>;
  struct ModelMark {
    bool touched = false;
    Time wake = kNever;  // its earliest entry in wakes_
  };

  void wake_models(Time now);

  std::vector<ModelMark> models_;
  std::vector<ModelIndex> touched_;
  std::vector<GpuletId> due_;
  Wakes<ModelIndex> wakes_;
  Wakes<GpuletId> gpulet_wakes_;
  bool instances_due_ = false;
};

}  // namespace gpulet::serve
