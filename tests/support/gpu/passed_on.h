// Variables by which tests tell stand-ins what to do: those in proxies hear of them as well.
#pragma once

#include <cstdlib>

namespace gpulet::support {

inline void pass_on_to_proxies() {
  ::setenv("GPULET_PROXY_ENVIRONMENT", "GPULET_FAKE_GPUS,GPULET_FAKE_MPS", 1);
}

}  // namespace gpulet::support
