// Runs a program of somebody else's to its end: bounded in time and in what it may say. Blocking;
// any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"

namespace gpulet::partition {

struct Command {
  std::filesystem::path program;  // its place, not only its name
  std::vector<std::string> arguments{};
  std::map<std::string, std::string> environment{};  // on top of this process's own
  std::vector<std::string> without{};  // variables of it that the program does not get
  std::string input{};                 // at most 4 KiB
  std::optional<uid_t> user{};         // whom it runs as, where this one may choose
  std::optional<gid_t> group{};
  Duration patience = std::chrono::seconds(5);
};

struct CommandAnswer {
  int exit_code = 0;
  std::string text;  // of both of its outputs, the first 64 KiB
};

// Fails with unavailable (it cannot be started, or a signal ended it) or timeout: it was killed
// then, with all that it had started in its own process group. What it leaves behind in another
// one, as a daemon does, is neither waited for nor killed.
[[nodiscard]] Result<CommandAnswer> run_command(const Command& command);

// Where PATH has that program; itself where it names a place. Fails with not_found.
[[nodiscard]] Result<std::filesystem::path> find_program(const std::filesystem::path& name);

}  // namespace gpulet::partition
