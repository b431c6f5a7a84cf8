// What one device could hold of the rates that are left: the best ways to divide and fill it. This
// is the pricing step of `cover`: the columns worth having at the prices of the relaxation. One
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/cover/device_room.h"
#include "schedule/cover/filled_device.h"
#include "schedule/cover/gpulet_choices.h"
#include "schedule/cover/relaxation.h"
#include "schedule/problem.h"

namespace gpulet::schedule {

struct DeviceChoice {
  FilledDevice filled;
  Rest rest;         // what it leaves
  double value = 0;  // devices' worth of work that it takes off the rest
};

// How far the search goes: the choices for each gpulet, and the unfinished devices that are kept
// while one gpulet after the other is added.
struct SearchWidth {
  std::size_t choices = 1;
  std::size_t devices = 1;
};

class DeviceChooser {
 public:
  // Both outlive it.
  DeviceChooser(Problem& problem, const Relaxation& relaxation);

  // At most `count`, the most valuable first. They keep the rules beside each other, whatever
  // slowdowns their gpulets cause each other.
  [[nodiscard]] std::vector<DeviceChoice> best(std::uint32_t device_class, const Rest& rest,
                                               SearchWidth width, std::size_t count);

  [[nodiscard]] std::uint64_t work() const { return gpulets_.work(); }

 private:
  // A device whose rest may still be divided.
  struct Open {
    DeviceChoice made;
    DeviceRoom room;
    double free_mb = 0;
  };
  // One more gpulet for one of the open devices.
  struct Extension {
    std::size_t open = 0;
    std::uint32_t size = 0;
    GpuletChoice choice;
    double value = 0;    // of the device with it
    double promise = 0;  // and with what the rest of it could be worth at most
  };

  void list_extensions(const std::vector<Open>& open, std::size_t at, SearchWidth width,
                       std::vector<Extension>* extensions);
  [[nodiscard]] Open with(const Open& open, const Extension& extension) const;
  [[nodiscard]] std::vector<Neighbour> neighbours(const FilledDevice& filled, std::size_t of) const;
  void settle(const Rest& before, DeviceChoice* choice);

  Problem* problem_;
  const Relaxation* relaxation_;
  GpuletChooser gpulets_;
};

// The rest after some of it has found a place.
void take_from(Rest* rest, const Portion& portion, const Problem& problem,
               const Relaxation& relaxation);

}  // namespace gpulet::schedule
