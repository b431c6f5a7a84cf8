#include "gpulet/mig/transition.h"

namespace gpulet::mig {

ActionCounts count_actions(const Transition& transition, const TransitionTask& task) {
  ActionCounts counts;
  for (const Action& action : transition.actions) {
    switch (action.kind) {
      case ActionKind::create:
        ++counts.created;
        break;
      case ActionKind::remove:
        ++counts.removed;
        break;
      case ActionKind::migrate: {
        const bool within =
            task.devices[action.device].node == task.devices[action.from_device].node;
        ++(within ? counts.migrated_within_nodes : counts.migrated_across_nodes);
        break;
      }
      case ActionKind::repartition:
        ++counts.repartitions;
        break;
    }
  }
  return counts;
}

}  // namespace gpulet::mig
