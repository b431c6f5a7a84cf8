// What stands on the devices while a transition is planned, stage by stage. Within a stage things
// are created beside all that stands, what leaves included, for it goes only when they serve.
//
// A value: a trial is made on a copy. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "mig/transition_goal.h"

namespace gpulet::mig {

// One stage: what it creates and then removes.
struct Step {
  std::vector<Standing> created, removed;
};

class Scene {
 public:
  // As `from` has it. REQUIRES: the goal outlives it.
  explicit Scene(const Goal& goal);

  [[nodiscard]] const Goal& goal() const { return *goal_; }
  [[nodiscard]] const std::vector<Standing>& on(std::uint32_t device) const {
    return standing_[device];
  }
  // What `to` has and does not stand yet, by site.
  [[nodiscard]] const std::vector<Standing>& missing() const { return missing_; }
  // Everything that stands and will remain after the stage.
  [[nodiscard]] std::vector<Standing> remaining() const;
  // Only `to` stands.
  [[nodiscard]] bool finished() const;

  // Whether an instance there would be legal beside all that stands.
  [[nodiscard]] bool fits(const Site& site) const;
  // What remains and is not compatible with it.
  [[nodiscard]] std::vector<Standing> in_the_way(const Site& site) const;
  // Whether something that is still to be created wants memory slices of the site.
  [[nodiscard]] bool is_wanted(const Site& site) const;
  // Memory slices of those instances that still fit on the device and would not beside the site.
  [[nodiscard]] std::uint32_t room_lost(const Site& site) const;

  // Devices with anything on them that neither deployment uses.
  [[nodiscard]] std::size_t extra_devices() const;
  [[nodiscard]] bool opens_extra_device(const Site& site) const {
    return standing_[site.device].empty() && !goal_->planned[site.device];
  }

  // What the service lacks of its least rate when the stage is over; 0 where it lacks nothing.
  [[nodiscard]] double lack(std::uint32_t service) const;
  // Whether all services keep their least rate without these.
  [[nodiscard]] bool can_do_without(std::span<const Standing> these) const;

  // REQUIRES: it fits.
  void create(const Standing& standing);
  // REQUIRES: it stands and remains.
  void leave(const Standing& standing);

  [[nodiscard]] bool changed() const { return !step_.created.empty() || !step_.removed.empty(); }
  // Ends the stage: what leaves is gone.
  Step finish_stage();
  // A whole stage that was tried on a copy.
  void repeat(const Step& step);

 private:
  [[nodiscard]] bool leaves(const Site& site) const;

  const Goal* goal_;
  std::vector<std::vector<Standing>> standing_;  // by device
  std::vector<std::uint32_t> taken_;             // bits of memory slices, by device
  std::vector<Standing> missing_;
  std::vector<double> rates_;  // of what remains
  Step step_;
};

}  // namespace gpulet::mig
