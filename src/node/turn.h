// Turn: the arguments of one call of BackendCore::on(). A value.
#pragma once

#include "gpulet/base/time.h"
#include "gpulet/node/backend_core.h"

namespace gpulet::node {

struct Turn {
  Time time;
  BackendEffects& effects;
};

}  // namespace gpulet::node
