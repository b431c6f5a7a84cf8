// ProxyUser: whom a proxy runs as, where that is not whom its backend runs as. Models are programs:
// a backend that is root does not want to run them as root.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::backend {

struct ProxyUser {
  std::string name;
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;  // beside it: those that own this machine's GPU device nodes
};

// What "proxy_user" of the backend's file stands for: the user of that name; without one, where
// this process is root, `gpulet` if there is such a user, else `nobody`. Nothing: proxies run as
// this process does, because it is not root, or because "root" was asked for. Fails with invalid
// (no such user; this process is not root and asks for another) or unavailable (root without the
// right to change users), with the mend.
[[nodiscard]] Result<std::optional<ProxyUser>> choose_proxy_user(const std::string& name);

}  // namespace gpulet::backend
