#include "gpulet/control/pi_controller.h"

#include <algorithm>

namespace gpulet::control {

PiController::PiController(PiGains gains, CoreBounds bounds, double cores)
    : gains_(gains), bounds_(bounds), cores_(cores) {}

double PiController::gain_cores_per_s() const {
  if (gains_.at_cores <= 0) return gains_.gain_cores_per_s;
  return gains_.gain_cores_per_s * cores_ / gains_.at_cores;
}

double PiController::ask(double error_s) {
  const double change = gain_cores_per_s() * (error_s - gains_.zero * last_error_s_);
  last_error_s_ = error_s;
  return std::clamp(cores_ + change, bounds_.least, bounds_.most);
}

void PiController::given(double cores) { cores_ = cores; }

}  // namespace gpulet::control
