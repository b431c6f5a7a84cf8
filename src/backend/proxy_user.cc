#include "gpulet/backend/proxy_user.h"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

namespace gpulet::backend {
namespace {

constexpr const char* kOwnUser = "gpulet";
constexpr const char* kAnybodysUser = "nobody";

// Names are looked up once, when the daemon starts: before there are other threads.
const passwd* look_up(const std::string& name) {
  return ::getpwnam(name.c_str());  // NOLINT(concurrency-mt-unsafe)
}

// What a root needs to run processes of another user and to hold them to their share.
struct NeededCapability {
  unsigned number;
  const char* name;
};
constexpr std::array kNeeded{
    NeededCapability{CAP_SETUID, "CAP_SETUID"}, NeededCapability{CAP_SETGID, "CAP_SETGID"},
    NeededCapability{CAP_KILL, "CAP_KILL"}, NeededCapability{CAP_SYS_NICE, "CAP_SYS_NICE"}};

std::string missing_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  std::string missing;
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return missing;
  for (const auto& [number, name] : kNeeded) {
    if ((sets.at(number / 32).effective & (1U << (number % 32))) != 0) continue;
    missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  return missing;
}

// Groups like video and render, by what they own rather than by name.
std::vector<gid_t> gpu_groups() {
  std::vector<gid_t> groups;
  const auto take = [&groups](const std::filesystem::path& node) {
    struct stat status {};
    const bool device = ::stat(node.c_str(), &status) == 0 && S_ISCHR(status.st_mode);
    if (device && status.st_gid != 0) groups.push_back(status.st_gid);
  };
  for (const std::string_view folder : {"/dev", "/dev/dri"}) {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const auto name = entry->path().filename().string();
      if (name.starts_with("nvidia") || folder == "/dev/dri") take(entry->path());
    }
  }
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

}  // namespace

Result<std::optional<ProxyUser>> choose_proxy_user(const std::string& name) {
  using Chosen = std::optional<ProxyUser>;
  const uid_t own = ::geteuid();
  const passwd* found = nullptr;
  if (!name.empty()) {
    found = look_up(name);
  } else if (own == 0) {
    found = look_up(kOwnUser);
    if (found == nullptr) found = look_up(kAnybodysUser);
  } else {
    return Chosen();
  }
  if (found == nullptr) {
    return Status(StatusCode::invalid,
                  name.empty() ? "there is neither a user gpulet nor a user nobody to run proxies "
                                 "as; name one in \"proxy_user\""
                               : "there is no user \"" + name + "\"; correct \"proxy_user\"");
  }
  if (found->pw_uid == own) return Chosen();
  if (own != 0) {
    return Status(StatusCode::invalid,
                  "only root may run proxies as another user; leave "
                  "\"proxy_user\" away, or start the backend as \"" +
                      name + "\"");
  }
  const std::string missing = missing_capabilities();
  if (!missing.empty()) {
    return Status(StatusCode::unavailable,
                  "root here lacks " + missing + " to run proxies as user " +
                      std::string(found->pw_name) +
                      "; add it, run the backend as that user, or set \"proxy_user\" to \"root\"");
  }
  return Chosen(ProxyUser{found->pw_name, found->pw_uid, found->pw_gid, gpu_groups()});
}

}  // namespace gpulet::backend
