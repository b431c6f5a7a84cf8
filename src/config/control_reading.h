// The object "control" of a frontend's file. Private to config.
#pragma once

#include "gpulet/config/json.h"
#include "gpulet/control/options.h"

namespace gpulet::config {

[[nodiscard]] control::Options read_control(const JsonCursor& cursor);

}  // namespace gpulet::config
