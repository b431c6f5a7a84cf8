// What the system would allow, found out by a child.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "gpulet/confine/confine.h"

namespace gpulet::confine {
namespace {

constexpr int kNoNetworkOfItsOwn = 1;
constexpr int kNoFilter = 2;
constexpr int kAllOfThem = kNoNetworkOfItsOwn | kNoFilter;

int tried_parts() {
  int missing = 0;
  if (!leave_network({}).ok()) missing |= kNoNetworkOfItsOwn;
  if (!filter_system_calls().ok()) missing |= kNoFilter;
  return missing;
}

}  // namespace

InForce try_in_child() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(tried_parts());
  int status = 0;
  pid_t ended = -1;
  while (child > 0 && (ended = ::waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  const bool told = ended == child && WIFEXITED(status);
  const int missing = told ? WEXITSTATUS(status) : kAllOfThem;
  const auto part = [missing](int bit) {
    return (missing & bit) == 0 ? Status()
                                : Status(StatusCode::unavailable, "this system refuses it");
  };
  return {part(kNoNetworkOfItsOwn), part(kNoFilter)};
}

std::string describe(const InForce& in_force) {
  const std::string network = in_force.network.ok()
                                  ? "a network namespace of its own"
                                  : "no network namespace (" + in_force.network.message() + ")";
  const std::string calls = in_force.system_calls.ok() ? "a filter of system calls"
                                                       : "no filter of system calls (" +
                                                             in_force.system_calls.message() + ")";
  return calls + ", " + network;
}

}  // namespace gpulet::confine
