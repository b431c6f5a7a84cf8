// Exchange-and-compact (MIG-serving, section 6): changes one deployment into another without
// interrupting a service.
//
// At every moment each service has at least the smaller of its old and its new rate. New instances
// are created before the instances that they replace are removed: on free slices, then on devices
// that neither deployment uses. Temporary replicas are migrated to their final slots afterwards,
// within a node before across nodes. Fewer free devices mean more stages. Instances that are
// already in their final slot never move. A transition always exists where at least as many devices
// are free as `from` uses, of the same types. Pure; any thread.
//
// An instance that keeps its services needs no action. During the transition it counts with the
// larger of its old and new rate, because its capacity does not change. A slot whose services
// change is a removal followed, one stage later, by a creation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/partition/mig_geometry.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::schedule::mig {

struct ServiceRate {
  std::uint32_t service = 0;  // index in TransitionTask::services
  double rate = 0;            // requests per second

  friend bool operator==(const ServiceRate&, const ServiceRate&) = default;
};

// An instance with the services that it runs: usually one, several where they take turns.
struct ServingInstance {
  std::uint32_t device = 0;  // index in TransitionTask::devices
  partition::MigInstance instance;
  std::vector<ServiceRate> parts;  // sorted by service, each once

  friend bool operator==(const ServingInstance&, const ServingInstance&) = default;
};

struct TransitionDevice {
  std::string node;
  partition::MigGeometry geometry;
  std::uint32_t number = 0;  // within its node, for pictures
};

struct TransitionTask {
  std::vector<TransitionDevice> devices;  // all devices that may be used on the way
  std::vector<std::string> services;
  std::vector<ServingInstance> from;  // a legal layout on every device, no instance twice
  std::vector<ServingInstance> to;    // likewise
};

enum class ActionKind : std::uint8_t {
  create,       // starts services on an existing, idle GPU instance
  remove,       // stops the services; the GPU instance stays idle until a repartition destroys it
  migrate,      // creates the services on another instance, then removes them here
  repartition,  // replaces idle GPU instances of a device by others
};
[[nodiscard]] std::string_view to_string(ActionKind kind);

struct Action {
  ActionKind kind = ActionKind::create;
  std::uint32_t stage = 0;  // index in Transition::stages
  std::uint32_t device = 0;
  // The instance that is created, removed or migrated to; for a repartition the first new one.
  ServingInstance target;
  // The source of a migration.
  std::uint32_t from_device = 0;
  partition::MigInstance from_instance;
  // A repartition destroys the instances in `cut` and makes those in `made`. All of them are idle.
  std::vector<partition::MigInstance> cut, made;
  // Indices, below its own, of the actions that must be complete first. Actions that do not depend
  // on each other may run at once.
  std::vector<std::size_t> after;
};

// A stage first creates instances beside everything that serves and then removes others. The next
// stage creates only in slots that are free by then.
struct Stage {
  std::vector<ServingInstance> created;
  std::vector<ServingInstance> removed;
  std::vector<ServingInstance> after;  // all that serve at the end, sorted by device and start
  std::size_t devices_in_use = 0;      // after the creations, before the removals
  // Indexed by service: the lower of its rates before the stage and after the stage's removals.
  std::vector<double> least_rate;
};

struct Transition {
  std::vector<Stage> stages;  // empty where the deployments differ in rates at most
  std::vector<Action> actions;
  std::size_t extra_devices = 0;  // used on the way beyond the larger of both deployments
};

// Fails with invalid for a malformed task, and with unavailable where no order of creations and
// removals keeps the rates of all services; the message says how many more free devices would
// suffice.
[[nodiscard]] Result<Transition> plan_transition(const TransitionTask& task);

struct ActionCounts {
  std::size_t created = 0, removed = 0, migrated_within_nodes = 0, migrated_across_nodes = 0,
              repartitions = 0;
};
[[nodiscard]] ActionCounts count_actions(const Transition& transition, const TransitionTask& task);

}  // namespace gpulet::schedule::mig

namespace gpulet::schedule {

// The stages from the running plan to a new one where MIG divides devices. An instance can replace
// others only after they are gone, so intermediate plans may be needed. Each can be rolled out next
// to the previous one without stopping anything that is still needed.
struct StagedPlan {
  // One per stage; the last is `to`. Only `to` without MIG or where one step is enough.
  std::vector<Plan> plans;
  // The problem that was solved: the devices that MIG divides, and the models as services.
  mig::TransitionTask task;
  mig::Transition transition;
};

// In `task`, the gpulets of one instance count as one with the sum of their rates. Devices without
// MIG take their gpulets of `to` from the first stage on. Temporary instances may be on any device
// of the cluster that MIG divides. Fails with unavailable where too few of them are free
// (mig::plan_transition), and with invalid for instances that the cluster's devices
// cannot have.
[[nodiscard]] Result<StagedPlan> stage_plan(const Plan& from, const Plan& to,
                                            const Cluster& cluster);

}  // namespace gpulet::schedule
