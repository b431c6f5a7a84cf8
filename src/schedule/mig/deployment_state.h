// The state in which a transition is planned: its goal, the instances on the devices, and the steps
// of the exchange (MIG-serving, section 6), stage by stage. Within a stage instances are created
// beside everything that serves, including the instances that the stage removes afterwards.
//
// Values: trials are made on copies. Any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gpulet/schedule/mig.h"

namespace gpulet::schedule::mig {

// Relative tolerance for sums of rates.
inline constexpr double kRateSlack = 1e-9;

struct InstanceSlot {
  std::uint32_t device = 0;
  partition::MigInstance instance;

  friend constexpr auto operator<=>(const InstanceSlot&, const InstanceSlot&) = default;
};

[[nodiscard]] inline InstanceSlot slot_of(const ServingInstance& serving) {
  return {serving.device, serving.instance};
}

// The services of an instance of that size on a device of that type, in any slot.
struct Content {
  std::string_view type;
  std::uint32_t slices = 0;
  std::vector<ServiceRate> parts;
};

struct Placement {
  InstanceSlot slot;
  std::uint32_t content = 0;  // index in TransitionGoal::contents
  bool final = false;         // part of `to`
  bool temporary = false;     // a replica that is part of neither deployment
};

struct TransitionGoal {
  const TransitionTask* task = nullptr;
  std::vector<double> min_rate;  // by service: the rate that must always be kept
  std::vector<Content> contents;
  std::vector<Placement> from;  // instances that stay are final and have the larger of their rates
  std::vector<Placement> to;    // instances to create
  std::vector<bool> planned;    // by device: `from` or `to` uses it
  std::vector<std::uint32_t> replica_contents;  // for temporary replicas: the best of each size

  [[nodiscard]] const partition::MigGeometry& geometry(std::uint32_t device) const {
    return task->devices[device].geometry;
  }
  [[nodiscard]] bool same_node(std::uint32_t one, std::uint32_t other) const {
    return task->devices[one].node == task->devices[other].node;
  }
  [[nodiscard]] const std::vector<ServiceRate>& parts_of(const Placement& placement) const {
    return contents[placement.content].parts;
  }
  // The memory slices that an instance in the slot covers, as a bit mask.
  [[nodiscard]] std::uint32_t memory_of(const InstanceSlot& slot) const {
    const std::uint32_t slices = geometry(slot.device).find(slot.instance.slices)->memory_slices;
    return ((1U << slices) - 1U) << slot.instance.start;
  }
};

// REQUIRES: a valid task, which outlives the goal.
[[nodiscard]] TransitionGoal goal_of(const TransitionTask& task);

// The rate of the service; 0 where `parts` lacks it.
[[nodiscard]] double rate_of(const std::vector<ServiceRate>& parts, std::uint32_t service);
[[nodiscard]] bool same_services(const std::vector<ServiceRate>& one,
                                 const std::vector<ServiceRate>& other);
[[nodiscard]] std::vector<double> rates_of(const std::vector<ServingInstance>& serving,
                                           std::size_t services);
[[nodiscard]] std::size_t devices_of(const std::vector<ServingInstance>& serving);

// Fails with invalid where the task has overlapping or unknown instances, unknown devices or
// services, or invalid rates.
[[nodiscard]] Status check(const TransitionTask& task);

// One stage: instances that it creates and then removes.
struct StageChange {
  std::vector<Placement> created, removed;
};

class DeploymentState {
 public:
  // Starts with `from`. REQUIRES: the goal outlives the state.
  explicit DeploymentState(const TransitionGoal& goal);

  [[nodiscard]] const TransitionGoal& goal() const { return *goal_; }
  // Instances of `to` that are not created yet, sorted by slot.
  [[nodiscard]] const std::vector<Placement>& missing() const { return missing_; }
  // Instances that remain after the stage.
  [[nodiscard]] std::vector<Placement> remaining() const;
  // Exactly `to` serves, and no stage is open.
  [[nodiscard]] bool finished() const;

  // Whether an instance in the slot would be legal beside everything on the device.
  [[nodiscard]] bool fits(const InstanceSlot& slot) const;
  // Remaining instances that are incompatible with the slot.
  [[nodiscard]] std::vector<Placement> blockers(const InstanceSlot& slot) const;
  // Whether an instance that is still to be created needs memory slices of the slot.
  [[nodiscard]] bool overlaps_missing(const InstanceSlot& slot) const;
  // The memory slices of all instances that fit on the device now but not beside the slot.
  [[nodiscard]] std::uint32_t capacity_lost(const InstanceSlot& slot) const;

  // The number of devices in use that neither deployment uses.
  [[nodiscard]] std::size_t extra_devices() const;
  [[nodiscard]] bool opens_extra_device(const InstanceSlot& slot) const {
    return placements_[slot.device].empty() && !goal_->planned[slot.device];
  }

  // The difference to the service's minimum rate at the end of the stage; 0 where it is reached.
  [[nodiscard]] double shortfall(std::uint32_t service) const;
  // Whether all services keep their minimum rates without these instances.
  [[nodiscard]] bool can_remove(std::span<const Placement> placements) const;

  // REQUIRES: it fits.
  void create(const Placement& placement);
  // Takes effect at the end of the stage. REQUIRES: it exists and remains.
  void remove(const Placement& placement);

  [[nodiscard]] bool changed() const {
    return !change_.created.empty() || !change_.removed.empty();
  }
  // Ends the stage and returns its changes.
  StageChange finish_stage();
  // Applies a whole stage that was tried on a copy.
  void apply(const StageChange& change);

 private:
  void put(const Placement& placement);
  [[nodiscard]] bool is_removed(const InstanceSlot& slot) const;

  const TransitionGoal* goal_;
  std::vector<std::vector<Placement>> placements_;  // by device
  std::vector<std::uint32_t> taken_;                // by device: memory slices as bit masks
  std::vector<Placement> missing_;
  std::vector<double> rates_;  // of the remaining instances
  StageChange change_;
};

// ---- The steps of a stage.

// Creates all missing instances whose slots are free.
void create_where_free(DeploymentState& state);

// Removes instances as far as the rates allow, in this order: blockers of missing instances, the
// least needed first; instances that no service will need again; temporary replicas.
void remove_unneeded(DeploymentState& state);

// The missing instances that are blocked, those with the least blocked work first.
[[nodiscard]] std::vector<Placement> blocked(const DeploymentState& state);

// Temporary replicas, for a state in which nothing can be created and nothing removed: instances
// elsewhere that replace the blockers for a while, on extra devices where necessary (MIG-serving,
// section 6).
class ReplicaPlanner {
 public:
  struct Options {
    std::size_t most_extra_devices = 0;  // in use at once
    std::size_t effort = 400;            // trials until the planner gives up
  };

  explicit ReplicaPlanner(const Options& options)
      : most_extra_devices_(options.most_extra_devices), effort_left_(options.effort) {}

  // Stages after which at least one more missing instance can be created. The first stage frees as
  // many slots as there is capacity for replicas. Empty where no way was found. REQUIRES: the state
  // is at the beginning of a stage.
  [[nodiscard]] std::optional<std::vector<StageChange>> find(const DeploymentState& state);

 private:
  using Changes = std::optional<std::vector<StageChange>>;

  [[nodiscard]] bool replace_blockers(DeploymentState& state, const InstanceSlot& slot,
                                      const std::vector<InstanceSlot>& reserved) const;
  [[nodiscard]] std::optional<Placement> choose(const DeploymentState& state, std::uint32_t service,
                                                const std::vector<Placement>& replaced,
                                                const std::vector<InstanceSlot>& reserved) const;
  [[nodiscard]] Changes free_slot(const DeploymentState& state, const InstanceSlot& slot,
                                  std::vector<InstanceSlot> reserved, int prior_moves);

  std::size_t most_extra_devices_;
  std::size_t effort_left_;
};

// A stage that moves all blockers to unused devices of the same geometry, one unused device for
// each blocked device. Empty where there are too few. REQUIRES: no temporary replicas.
[[nodiscard]] std::optional<StageChange> move_to_spares(const DeploymentState& state);

}  // namespace gpulet::schedule::mig
