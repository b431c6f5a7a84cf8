// Starting a proxy program with as few rights as it needs, and describing its end.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/backend/proxy_confinement.h"
#include "gpulet/backend/proxy_user.h"
#include "gpulet/core/status.h"

namespace gpulet::backend {

struct SpawnOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments;  // without the program's name
  // On top of what proxy_environment.h passes on of this process's own.
  std::map<std::string, std::string> environment;
  std::vector<int> descriptors;  // become 3, 4, ...; every other one above 2 is closed
  // Starts below this process's priority, where that can be taken back later.
  bool in_background = false;
  std::optional<ProxyUser> user{};  // whom it becomes, for good; nothing: whom this process is
  ProxyConfinement confinement{};
};

// Signals are at their defaults in the child and none is blocked; it leads a process group of its
// own. Neither it nor what it starts can gain a right that it does not have (no_new_privs); it
// leaves no core file, and files that it makes are for its user alone. The program need not lie
// where `user` may look. Fails with not_found or unavailable, naming the program and the user.
[[nodiscard]] Result<pid_t> spawn(const SpawnOptions& options);

// What every proxy starts with on top. Numeric libraries make their threads when the program
// starts; a share may allow it more than one thread later, by the environment that comes with its
// models.
[[nodiscard]] const std::map<std::string, std::string>& environment_of_nobody();

// Gives a process that was started in the background the priority of this one.
void raise_priority(pid_t process);

// What waitpid said: ok for exit code 0, else unavailable "was killed by signal 9 (Killed)" and the
// like.
[[nodiscard]] Status describe_end(pid_t process, int wait_status);

}  // namespace gpulet::backend
