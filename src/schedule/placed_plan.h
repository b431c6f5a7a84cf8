// From a placement, which says what runs where and in how large a share, to its plan: the rounds of
// every device (device_rounds.h). Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <string_view>
#include <vector>

#include "gpulet/schedule/plan.h"
#include "schedule/device_rounds.h"

namespace gpulet::schedule {

// What of the devices a placement has taken so far.
class TakenDevices {
 public:
  explicit TakenDevices(const Problem& problem) : problem_(&problem) {}

  // Null, and the gpulet is taken; or what it would be too much for, as the end of a sentence that
  // says so of its device: "has no partition left".
  [[nodiscard]] const char* take(const PlacedGpulet& gpulet);

 private:
  struct Taken {
    std::uint32_t partitions = 0;
    int percent = 0;
    double memory_mb = 0;
  };
  const Problem* problem_;
  std::map<std::uint32_t, Taken> taken_;  // by index in Problem::devices
};

// The order of gpulets in a plan: by device, falling size, models.
void put_in_order(const Problem& problem, std::vector<PlacedGpulet>* gpulets);

class PlacedPlan {
 public:
  // The gpulets are put in order. REQUIRES: TakenDevices takes them all, none without a turn;
  // `problem` and `tables` outlive it.
  PlacedPlan(const Problem& problem, SlowdownTables& tables, std::vector<PlacedGpulet> gpulets);

  // The least batches for what is wanted (DeviceRounds::settle).
  void settle();
  // Where a model's gpulets do not hold all that is wanted of them, the others of the model get
  // what they have room for, as long as nobody beside them loses by it. REQUIRES: settled.
  void share_out();
  // The largest batches for what is held (DeviceRounds::grow). REQUIRES: settled.
  void grow();

  // Requests per second without a place, beside Problem::models; exactly 0 where all have one.
  [[nodiscard]] std::vector<double> left() const;
  // With what is unserved explained by why(model, left). `plan.policy` stays empty.
  template <typename Why>
  [[nodiscard]] Plan finish(const Why& why) const {
    Plan plan;
    plan.gpulets = planned();
    const std::vector<double> without_place = left();
    for (std::size_t model = 0; model < without_place.size(); ++model) {
      if (without_place[model] <= 0) continue;
      plan.unserved.push_back({problem_->models()[model]->name, without_place[model],
                               why(model, without_place[model], plan.devices_used())});
    }
    return plan;
  }

 private:
  struct SeatAt {
    std::size_t device = 0;  // index in devices_
    std::size_t seat = 0;
  };
  [[nodiscard]] std::vector<PlannedGpulet> planned() const;
  // How much more the seat holds, and holds from now on, of what is left of its model.
  double take_more(const SeatAt& at, double left);

  const Problem* problem_;
  std::vector<PlacedGpulet> gpulets_;
  std::vector<std::size_t> first_gpulet_;  // of every device, and behind the last
  std::vector<DeviceRounds> devices_;
};

}  // namespace gpulet::schedule
