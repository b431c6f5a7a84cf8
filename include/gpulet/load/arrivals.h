// When an open loop's requests are to be sent. Pure: the times follow from kind, rate and seed
// alone. One thread at a time.
#pragma once

#include <cstdint>

#include "gpulet/config/workload_config.h"
#include "gpulet/core/random.h"
#include "gpulet/core/time.h"

namespace gpulet::load {

class ArrivalProcess {
 public:
  // `kind` poisson: independent exponential gaps. uniform: equal gaps after a seeded phase below
  // one gap. REQUIRES: kind is not closed (a closed loop has no schedule), rate > 0 per second;
  // throws std::invalid_argument.
  ArrivalProcess(config::Arrivals kind, double rate, std::uint64_t seed);

  // The next arrival, counted from the start of the run (time zero). Never decreases.
  [[nodiscard]] Time next();

 private:
  config::Arrivals kind_;
  double rate_;
  Random random_;
  double last_s_ = 0;           // poisson: the last arrival
  double phase_s_ = 0;          // uniform
  std::uint64_t arrivals_ = 0;  // uniform: counted, so that no rounding error adds up
};

}  // namespace gpulet::load
