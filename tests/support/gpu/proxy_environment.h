// Makes the backend pass the variables of the fakes on to its proxies.
#pragma once

#include <cstdlib>

namespace gpulet::support {

inline void share_with_proxies() {
  ::setenv("GPULET_PROXY_ENVIRONMENT", "GPULET_FAKE_GPUS,GPULET_FAKE_MPS", 1);
}

}  // namespace gpulet::support
