#include "gpulet/load/arrivals.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace gpulet::load {

ArrivalProcess::ArrivalProcess(config::Arrivals kind, double rate, std::uint64_t seed)
    : kind_(kind), rate_(rate), random_(seed) {
  if (kind == config::Arrivals::closed)
    throw std::invalid_argument("a closed loop has no arrival schedule");
  if (!(rate > 0) || !std::isfinite(rate)) {
    throw std::invalid_argument("an arrival process needs a rate above 0; was " +
                                std::to_string(rate));
  }
  phase_s_ = random_.uniform() / rate_;
}

Time ArrivalProcess::next() {
  if (kind_ == config::Arrivals::uniform) {
    const double at_s = phase_s_ + static_cast<double>(arrivals_++) / rate_;
    return Time(from_seconds(at_s));
  }
  last_s_ += random_.exponential(1 / rate_);
  return Time(from_seconds(last_s_));
}

}  // namespace gpulet::load
