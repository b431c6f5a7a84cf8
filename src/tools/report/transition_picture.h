// Draws MIG transitions as SVG documents: the devices in use before, during and after. Each moment
// is a row, each device a box with its instances, each service a colour. Pure.
#pragma once

#include <string>

#include "gpulet/schedule/mig_transition.h"

namespace gpulet::tools {

[[nodiscard]] std::string draw_transition(const schedule::mig::Transition& transition,
                                          const schedule::mig::TransitionTask& task);

}  // namespace gpulet::tools
