// Shell scripts that complete the command line of a program, generated from its declared commands.
// For names of models the scripts run `completion models`, which asks the frontend that the command
// line names. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpulet::tools {

// The candidates for a value without a fixed list of choices.
enum class Candidates : std::uint8_t { files, models };

struct CompletedOption {
  std::vector<std::string> names;  // with dashes
  std::string description;
  bool takes_value = false;
  std::vector<std::string> choices{};  // of its value; empty: see `candidates`
  Candidates candidates = Candidates::files;
};

struct CompletedCommand {
  std::string path;  // "gpulet models load"
  std::string description;
  std::vector<CompletedOption> options;
  std::vector<std::string> choices{};  // of positional arguments; empty: see `candidates`
  Candidates candidates = Candidates::files;
};

// The program itself, then its commands, each after its parent. REQUIRES: not empty.
using CompletedProgram = std::vector<CompletedCommand>;

[[nodiscard]] std::string bash_completion(const CompletedProgram& program);
[[nodiscard]] std::string zsh_completion(const CompletedProgram& program);
[[nodiscard]] std::string fish_completion(const CompletedProgram& program);

}  // namespace gpulet::tools
