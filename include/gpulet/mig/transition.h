// From one deployment to another while it serves: exchange-and-compact (MIG-serving, section 6).
//
// At every moment each service has at least the smaller of what it needed and what it will need.
// New instances are created before those that they replace are removed, on free slices and, where
// these do not suffice, on devices that neither deployment uses; instances that only stood there
// in between are migrated to their places, within a node before across nodes. With few free
// devices it takes more stages. What is in its place already is never moved; with as many free
// devices of the same types as `from` uses there is always a way. Pure; any thread.
//
// An instance that stays with the services that it has takes no action. Until the transition is
// over it counts with the larger of its old and its new rate: what it can do has not changed, only
// what is asked of it. A place that changes services is a removal and, a stage later, a creation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/partition/mig_geometry.h"

namespace gpulet::mig {

// What an instance gives a service.
struct Part {
  std::uint32_t service = 0;  // index in TransitionTask::services
  double rate = 0;            // requests per second

  friend bool operator==(const Part&, const Part&) = default;
};

// An instance that serves. Usually one service, several where they take turns.
struct Holding {
  std::uint32_t device = 0;  // index in TransitionTask::devices
  partition::MigInstance instance;
  std::vector<Part> parts;  // by service, each once

  friend bool operator==(const Holding&, const Holding&) = default;
};

struct TransitionDevice {
  std::string node;
  partition::MigGeometry geometry;
  std::uint32_t number = 0;  // within its node, for pictures
};

struct TransitionTask {
  std::vector<TransitionDevice> devices;  // all that may be used on the way
  std::vector<std::string> services;
  std::vector<Holding> from;  // legal on every device, no instance twice
  std::vector<Holding> to;    // the same
};

enum class ActionKind : std::uint8_t {
  create,       // on a GPU instance that is there, idle
  remove,       // the GPU instance stays, idle, until a repartition cuts it
  migrate,      // an instance's services move to another instance: created there, removed here
  repartition,  // a device's instances are cut anew where they are not in use
};
[[nodiscard]] std::string_view to_string(ActionKind kind);

struct Action {
  ActionKind kind = ActionKind::create;
  std::uint32_t stage = 0;  // index in Transition::stages
  std::uint32_t device = 0;
  // What is created or removed, or where it is migrated to; of a repartition the first new one.
  Holding holding;
  // Of a migration: where it comes from.
  std::uint32_t from_device = 0;
  partition::MigInstance from_instance;
  // Of a repartition: instances that go, and that come; none of either is in use.
  std::vector<partition::MigInstance> cut, made;
  // Actions that must be complete before: indices below its own. Actions without a path between
  // them may run at once.
  std::vector<std::size_t> after;
};

// A stage creates instances beside everything that serves; when all of them serve, it removes
// others. What the next stage creates stands where nothing does any more.
struct Stage {
  std::vector<Holding> created;
  std::vector<Holding> removed;
  std::vector<Holding> after;      // all that serve when it is over, by device and start
  std::size_t devices_in_use = 0;  // at its fullest: before anything is removed
  // The least that each service has during the stage, before it and after its removals: beside
  // services.
  std::vector<double> least_rate;
};

struct Transition {
  std::vector<Stage> stages;  // empty: from and to differ in rates at most
  std::vector<Action> actions;
  std::size_t extra_devices = 0;  // used on the way beyond the larger of both deployments
};

// Fails with invalid for a task that is not as required, and with unavailable where no order of
// creations and removals keeps the services' rates: the message says how many more free devices
// would do.
[[nodiscard]] Result<Transition> plan_transition(const TransitionTask& task);

struct ActionCounts {
  std::size_t created = 0, removed = 0, migrated_within_nodes = 0, migrated_across_nodes = 0,
              repartitions = 0;
};
[[nodiscard]] ActionCounts count_actions(const Transition& transition, const TransitionTask& task);

// The devices that are used before, during and after, as an SVG document: a row for each moment, a
// box for each device with its instances, a colour for each service.
[[nodiscard]] std::string picture_of(const Transition& transition, const TransitionTask& task);

}  // namespace gpulet::mig
