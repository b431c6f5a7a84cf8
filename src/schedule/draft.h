// A plan in the making: which devices are open, how each is divided, and which models take turns in
// each gpulet. Policies work on it and finish() turns it into a Plan. Devices are numbered here in
// the order in which they were opened: which real device each one becomes, finish() decides. It
// keeps count of what is left of every demand.
//
// Which sizes MIG allows beside each other a draft does not know: whoever adds them does.
//
// Where gpulets of a device slow each other down, a question is about the newcomer and about
// everyone beside it: a change that breaks a neighbour's rules has no room. A change REQUIRES that
// the question about it was answered with yes. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/problem.h"
#include "schedule/round.h"

namespace gpulet::schedule {

struct DraftGpulet {
  std::uint32_t device = 0;  // index in Draft::devices
  std::uint32_t size = 0;    // index in the class's sizes
  double load = 0;  // sum of rate * least_ms: above 1 no round fits; below it one may or may not
  std::vector<Turn> turns;  // by model, their rows beside the present neighbours; empty: the gpulet
                            // is gone
  std::optional<std::uint32_t> next;  // on the same device
};

struct DraftDevice {
  std::uint32_t device_class = 0;
  std::uint32_t partitions = 0;  // 0: not in use
  int free_percent = 100;
  double memory_mb = 0;                // of the models loaded
  std::optional<std::size_t> roomy;    // where it stands in Draft::roomy()
  std::optional<std::uint32_t> first;  // of its gpulets
};

class Draft {
 public:
  // `problem` outlives the draft.
  explicit Draft(Problem& problem);

  [[nodiscard]] const Problem& problem() const { return *problem_; }
  [[nodiscard]] const std::vector<DraftGpulet>& gpulets() const { return gpulets_; }
  [[nodiscard]] const std::vector<DraftDevice>& devices() const { return devices_; }
  [[nodiscard]] std::size_t devices_used() const { return used_; }
  // Open devices on which one more gpulet of some listed size has room, in no particular order.
  [[nodiscard]] const std::vector<std::uint32_t>& roomy() const { return roomy_; }

  [[nodiscard]] const DeviceClass& class_of(std::uint32_t device) const {
    return problem_->classes()[devices_[device].device_class];
  }
  [[nodiscard]] int percent(const DraftGpulet& gpulet) const {
    return class_of(gpulet.device).sizes[gpulet.size];
  }
  // Beside the gpulet's present neighbours.
  [[nodiscard]] const Row& row(std::size_t model, const DraftGpulet& gpulet) const {
    const std::uint32_t device_class = devices_[gpulet.device].device_class;
    return problem_->interferes(device_class) ? row_beside(model, gpulet)
                                              : problem_->row(model, device_class, gpulet.size);
  }
  [[nodiscard]] Turn turn(std::size_t model, const Row& row, double rate) const;

  // Requests per second of a model without a place so far; exactly 0 once all have one.
  [[nodiscard]] double left(std::size_t model) const { return left_[model]; }
  // What is left of all demands, each as a part of its own: 0 for a plan that serves everything.
  [[nodiscard]] double left_of_all() const;

  // Whether one more device of the class may be opened.
  [[nodiscard]] bool can_open(std::size_t device_class) const {
    return used_ < problem_->device_budget() && unopened_[device_class] > 0;
  }
  std::uint32_t open(std::size_t device_class);

  // Whether memory is left for the model: on an open device, or on an empty one of a class.
  [[nodiscard]] bool memory_fits(std::size_t model, std::uint32_t device) const;
  [[nodiscard]] bool memory_fits_empty(std::size_t model, std::size_t device_class) const;

  // The most that a new gpulet of that size (an index) on an open device could take of the model; 0
  // where share, partitions or memory leave it no room, or where a gpulet beside it would break its
  // rules. On a device still to be opened it is problem().row(..).most_rate.
  [[nodiscard]] double most_rate_of_new(std::uint32_t device, std::uint32_t size,
                                        std::size_t model);
  // A gpulet of one model, on a device with room for it (most_rate_of_new).
  std::size_t add_gpulet(std::uint32_t device, std::uint32_t size, std::size_t model, double rate);

  // Whether the gpulet can take `rate` more of the model; the most that it can take, 0 for nothing.
  // Not const: they try it on the gpulet and take it back.
  [[nodiscard]] bool fits(std::size_t gpulet, std::size_t model, double rate);
  [[nodiscard]] double most_rate(std::size_t gpulet, std::size_t model);
  void add(std::size_t gpulet, std::size_t model, double rate);

  // The gpulet that can take the most of a model, and how much; nothing where none takes any.
  struct Room {
    std::size_t gpulet = 0;
    double rate = 0;
  };
  [[nodiscard]] std::optional<Room> most_room(std::size_t model);

  // A share of an open device, or of one that is still to be opened.
  struct Spot {
    std::size_t device_class = 0;
    std::optional<std::uint32_t> device;
    std::uint32_t size = 0;
  };
  // Whether a new gpulet there, which has room by its share, would hold the newcomer and all turns
  // of a gpulet that moves into it and gives up its own share.
  [[nodiscard]] bool absorbs(const Spot& spot, std::size_t model, double rate, std::size_t gpulet);
  // Moves all turns of `from` into `into` and gives up the share of `from`, and its device with the
  // last share.
  void absorb(std::size_t into, std::size_t from);

  // Enlarges gpulets without full room for bursts (tight_cycle) into share of their devices that
  // nobody uses, those with the least room first, each no further than it gains by. MIG's instances
  // stay as they are.
  void use_spare_share();

 private:
  [[nodiscard]] double memory_of(std::size_t model, std::uint32_t device) const {
    return problem_->on_class(model, devices_[device].device_class).memory_mb;
  }
  [[nodiscard]] const Row& row_beside(std::size_t model, const DraftGpulet& gpulet) const;

  // A gpulet of a device as its neighbours feel it.
  struct Occupant {
    std::optional<std::size_t> gpulet;  // none: a newcomer
    Neighbour felt;
  };
  [[nodiscard]] std::vector<Occupant> occupants(std::uint32_t device) const;
  [[nodiscard]] static std::vector<Neighbour> others_of(const std::vector<Occupant>& occupants,
                                                        std::size_t at);
  // Whether all of them but the one at `changed` hold, as they are described.
  [[nodiscard]] bool others_hold(std::uint32_t device_class, const std::vector<Occupant>& occupants,
                                 std::size_t changed);
  // The same where a gpulet gets one more model, or another size.
  [[nodiscard]] bool neighbours_bear(std::size_t gpulet, std::optional<std::size_t> model,
                                     std::uint32_t size);
  [[nodiscard]] bool memory_absorbs(const Spot& spot, std::size_t gpulet) const;
  void link(std::size_t gpulet);
  void unlink(std::size_t gpulet);
  // The rows of all gpulets of a device beside each other as they are now.
  void refresh(std::uint32_t device);

  void update_roomy(std::uint32_t device);
  void join(DraftGpulet& gpulet, const Turn& newcomer);
  void take(std::size_t model, double rate);
  void grow(std::size_t gpulet);

  // Whether the model and those of these turns may share a gpulet (ModelDemand::alone).
  [[nodiscard]] bool may_join(const std::vector<Turn>& turns, std::size_t model) const;

  Problem* problem_;
  std::vector<DraftGpulet> gpulets_;
  std::vector<DraftDevice> devices_;
  std::vector<std::uint32_t> roomy_;
  std::vector<std::size_t> unopened_;  // beside the problem's classes
  std::vector<double> left_;           // beside the problem's models
  std::size_t used_ = 0;
  std::vector<Turn> scratch_;
};

// The sum that bounds a round: above 1 no duty cycle holds it.
[[nodiscard]] double load_of(const std::vector<Turn>& turns);

// The size (an index) that a gpulet gets which needs `wanted` of a device with `free_percent` left
// in `partitions`: `wanted` itself, or all the listed size that the rest holds where nobody else
// could use what it would leave. Nothing where the device cannot be divided any more or too little
// is left.
[[nodiscard]] std::optional<std::uint32_t> size_taken(const DeviceClass& device_class,
                                                      int free_percent, std::uint32_t partitions,
                                                      std::uint32_t wanted);

}  // namespace gpulet::schedule
