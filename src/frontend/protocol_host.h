// The frontend's own name for what its endpoints ask of it.
#pragma once

#include "gpulet/net/kserve/host.h"

namespace gpulet::frontend {

using ProtocolHost = net::kserve::ProtocolHost;

}  // namespace gpulet::frontend
