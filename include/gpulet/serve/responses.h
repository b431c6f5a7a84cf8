// Responses: response times of one model as its controllers and the choice of the neediest model
// see them. Pure: time comes in; one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "gpulet/core/time.h"
#include "gpulet/observe/histogram.h"

namespace gpulet::serve {

class Responses {
 public:
  enum class Where : std::uint8_t { gpu, cpu, nowhere };  // nowhere: dropped

  // Recent is what was answered in the last `window`, to a tenth of it.
  explicit Responses(Duration window) : slot_(window / kSlots) {}

  void record(Duration response, Where where, Time now);

  [[nodiscard]] std::optional<Duration> recent_mean(Time now) const;

  // What was recorded since the last call.
  struct Period {
    std::uint64_t on_gpu = 0;
    std::uint64_t on_cpu = 0;
    std::uint64_t dropped = 0;
    double gpu_s = 0;   // their response times, added up
    double rest_s = 0;  // those of CPUs and what was dropped
    observe::Histogram histogram{};
    observe::Histogram rest_histogram{};

    [[nodiscard]] std::uint64_t answered() const { return on_gpu + on_cpu; }
  };
  [[nodiscard]] Period take_period();

 private:
  static constexpr std::int64_t kSlots = 10;
  struct Slot {
    std::int64_t number = -1;  // since the clock's beginning
    std::uint64_t count = 0;
    double sum_s = 0;
  };
  [[nodiscard]] std::int64_t slot_of(Time time) const { return time.time_since_epoch() / slot_; }

  Duration slot_;
  std::array<Slot, kSlots> slots_{};
  Period period_;
};

}  // namespace gpulet::serve
