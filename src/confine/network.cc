// A network of its own.
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "gpulet/confine/confine.h"

namespace gpulet::confine {
namespace {

bool write_line(const char* file, const std::string& line) {
  const int descriptor = ::open(file, O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool written =
      ::write(descriptor, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  ::close(descriptor);
  return written;
}

// Whoever makes a user namespace has all capabilities in it.
void drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
  ::syscall(SYS_capset, &header, none.data());
}

// The process keeps its user and group: one of each is mapped, to itself.
void map_own_ids(uid_t user, gid_t group) {
  const auto one = [](auto id) { return std::to_string(id) + " " + std::to_string(id) + " 1"; };
  write_line("/proc/self/setgroups", "deny");
  write_line("/proc/self/uid_map", one(user));
  write_line("/proc/self/gid_map", one(group));
}

}  // namespace

std::string network_namespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/net", error).string();
}

Status leave_network(std::string_view outside) {
  const auto own = network_namespace();
  if (!own.empty() && !outside.empty() && own != outside) return {};
  if (::unshare(CLONE_NEWNET) == 0) return {};
  const int as_itself = errno;
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    return {StatusCode::unavailable, std::string("neither by its own rights (") +
                                         std::strerror(as_itself) + ") nor in a user namespace (" +
                                         std::strerror(errno) + ")"};
  }
  map_own_ids(user, group);
  drop_capabilities();
  return {};
}

}  // namespace gpulet::confine
