// Runs the built `gpulet` program and collects what it prints. Tests only; blocking.
#pragma once

#include <string>
#include <vector>

namespace gpulet::tools {

struct ProgramResult {
  int exit_code = -1;  // -1: a signal ended it
  std::string output;
  std::string errors;
};

[[nodiscard]] ProgramResult run_gpulet(const std::vector<std::string>& arguments);

// The same for another program. REQUIRES: one call at a time.
[[nodiscard]] ProgramResult run_program_at(const std::string& path,
                                           const std::vector<std::string>& arguments);

// The line of candidates that bash offers for the last of these words with the completion script.
[[nodiscard]] std::string bash_completions(const std::string& script, const std::string& words);

}  // namespace gpulet::tools
