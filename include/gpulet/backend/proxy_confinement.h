// ProxyConfinement: what proxies are kept from, beside their user (proxy_user.h). Plain values.
#pragma once

#include <string>
#include <vector>

namespace gpulet::backend {

struct ProxyConfinement {
  bool sandbox = true;                   // as confine/confine.h says
  std::vector<std::string> variables{};  // of the environment, passed on beside the usual ones
};

}  // namespace gpulet::backend
