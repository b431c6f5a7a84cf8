// Runs external programs, with limits on time and output. Blocking; any thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"

namespace gpulet::partition {

struct Command {
  std::filesystem::path program;  // a path, not only a name
  std::vector<std::string> arguments{};
  std::map<std::string, std::string> environment{};  // in addition to this process's own
  std::vector<std::string> without{};                // variables to remove from the environment
  std::string input{};                               // at most 4 KiB
  std::optional<uid_t> user{};                       // takes privileges
  std::optional<gid_t> group{};
  Duration patience = std::chrono::seconds(5);
};

struct CommandOutput {
  int exit_code = 0;
  std::string text;  // standard output and error, the first 64 KiB
};

// Fails with unavailable (the program does not start, or a signal ended it) or timeout; the program
// and its process group are then killed. Processes in other groups, such as a daemon that it
// started, are neither waited for nor killed.
[[nodiscard]] Result<CommandOutput> run_command(const Command& command);

// The path of a program in PATH; a name with a folder is returned as it is. Fails with not_found.
[[nodiscard]] Result<std::filesystem::path> find_program(const std::filesystem::path& name);

}  // namespace gpulet::partition
