// Sandbox of processes that run models. A model is a program, so the process permanently gives up
// rights before it reads the first model:
//
//  - the network: it moves into an empty network namespace, without even loopback, where the system
//    allows this;
//  - system calls that models never need, by a libseccomp filter: network sockets, new programs and
//    processes, access and signals to other processes, administration of the machine;
//  - all sockets and new files, by a second filter, where its device needs none. What a model
//    writes would outlive its process, outside of the process's memory limit.
//
// Parts that the system refuses are skipped and reported, and the process serves without them.
// Refused calls fail with EPERM, or with ENOSYS where libraries then use another call. Linux only.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "gpulet/base/status.h"

namespace gpulet::confine {

// Environment variable of a proxy: "off" disables the sandbox. Not set: on.
inline constexpr const char* kSandboxVariable = "GPULET_SANDBOX";
// Environment variable of a proxy: network_namespace() of the process that starts it.
inline constexpr const char* kNetworkVariable = "GPULET_SANDBOX_NETWORK";

// The parts in force; a failed status says why a part is not.
struct InForce {
  Status network;       // without network
  Status system_calls;  // filtered
};

// A description for a log.
[[nodiscard]] std::string describe(const InForce& in_force);

// The name of this process's network namespace: "net:[4026531840]". Empty where it is not readable.
[[nodiscard]] std::string network_namespace();

// Moves the process into an empty network namespace, unless it is in another one than `outside`
// already. REQUIRES: a process that is not root has a single thread.
[[nodiscard]] Status leave_network(std::string_view outside);

// Prevents other processes of the same user from attaching and reading memory, and disables core
// dumps.
void close_to_others();

// Installs the filter for all present and future threads. It cannot be removed.
[[nodiscard]] Status filter_system_calls();

// Also refuses all socket calls and everything that makes files, folders or objects of System V
// IPC; open sockets and existing files stay usable.
[[nodiscard]] Status filter_sockets_and_new_files();

// The parts that a child process could put in force. Forks: call it before other threads exist.
[[nodiscard]] InForce try_in_child();

// Whether every user may enter the folder, by the mode bits of it and of the folders above it. A
// proxy of another user finds no libraries in a folder that it may not enter. Blocking file I/O.
[[nodiscard]] bool others_may_enter(const std::filesystem::path& folder);

}  // namespace gpulet::confine
