// PiController: how many cores one executable asks for. The velocity form of a PI:
// u(t) = u'(t-1) + K (e(t) - a e(t-1)), where u' is what it was given, not what it asked for. So
// bounds and contention leave nothing behind that would have to be unwound. Source: ROMA, section
// 4. Pure; one thread at a time.
#pragma once

#include "gpulet/control/pole_placement.h"

namespace gpulet::control {

struct CoreBounds {
  double least = 0.1;
  double most = 1;
};

class PiController {
 public:
  // REQUIRES: 0 < least <= most.
  PiController(PiGains gains, CoreBounds bounds, double cores);

  // Once a period. `error_s`: response time minus set point. Returns what it asks for, within the
  // bounds.
  [[nodiscard]] double ask(double error_s);
  // What it was given for that, which may be less or more.
  void given(double cores);

  [[nodiscard]] double cores() const { return cores_; }

 private:
  [[nodiscard]] double gain_cores_per_s() const;

  PiGains gains_;
  CoreBounds bounds_;
  double cores_;
  double last_error_s_ = 0;
};

}  // namespace gpulet::control
