// Inventory: the resources of the machine that a site's processes hold, from /proc and /sys.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace gpulet::bench {

struct ProcessFacts {
  pid_t pid = 0;
  pid_t parent = 0;
  std::string program;  // the file's name
  double resident_mb = 0;
  std::size_t descriptors = 0;
  std::size_t threads = 0;
};

// Every process of this machine with `mark` (NAME=VALUE) in its environment.
[[nodiscard]] std::vector<ProcessFacts> processes_with(const std::string& mark);

// Things with "gpulet" in their name that a process may leave behind: files of shared memory, Unix
// sockets with a path, control groups.
[[nodiscard]] std::set<std::string> named_leftovers();

}  // namespace gpulet::bench
