// Confinement of processes that run models: which rights they give up, for good, before they read
// the first one. A model is a program; what it never needs is taken from it.
//
//  - its own network namespace, where the system allows one: no interface, not even loopback;
//  - a filter of system calls (libseccomp): no network sockets, no new programs or processes, no
//    look into other processes, no signals to them, nothing that administers the machine;
//  - where its device needs no socket, a second filter that allows none at all.
//
// Parts that the system refuses are left out and told: a confinement is never a reason not to
// serve. Calls that are refused fail with EPERM, or with ENOSYS where a library tries another one
// then. Linux only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::confine {

// Environment of a proxy program: "off" leaves it as it is. Not set: on.
inline constexpr const char* kSandboxVariable = "GPULET_SANDBOX";
// The network namespace of the process that starts it, as network_namespace() has it.
inline constexpr const char* kNetworkVariable = "GPULET_SANDBOX_NETWORK";

// What is in force, or why it is not.
struct InForce {
  Status network;       // no network is there
  Status system_calls;  // the filter is there
};

// "system calls are filtered; no own network namespace: ...", for a log.
[[nodiscard]] std::string describe(const InForce& in_force);

// What this process's network is called: "net:[4026531840]". Empty where that cannot be read.
[[nodiscard]] std::string network_namespace();

// Leaves the network for an empty one, unless the process is elsewhere than `outside` already.
// REQUIRES: the process has one thread where it is not root.
[[nodiscard]] Status leave_network(std::string_view outside);

// No process of the same user may attach to this one or read its memory, and it leaves no core.
void close_to_others();

// The filter, for all threads that are there and will be. It cannot be taken back.
[[nodiscard]] Status filter_system_calls();

// In addition: no sockets but those that are open.
[[nodiscard]] Status filter_sockets();

// What a child of this process could have. Forks: to be called before there are other threads.
[[nodiscard]] InForce try_in_child();

}  // namespace gpulet::confine
