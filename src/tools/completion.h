// The scripts that complete a program's command line in a shell, made from what it declares. Pure;
// any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpulet::tools {

struct CompletedOption {
  std::vector<std::string> names;  // with their dashes
  std::string description;
  bool takes_value = false;
  std::vector<std::string> choices{};  // of its value; none: files are offered
};

struct CompletedCommand {
  std::string path;  // "gpulet models load"
  std::string description;
  std::vector<CompletedOption> options;
  std::vector<std::string> choices{};  // of what stands without a name; none: files are offered
};

// A program's command and all below it, each after the one that it belongs to; the first is the
// program itself. REQUIRES: at least that.
using CompletedProgram = std::vector<CompletedCommand>;

[[nodiscard]] std::string bash_completion(const CompletedProgram& program);
[[nodiscard]] std::string zsh_completion(const CompletedProgram& program);
[[nodiscard]] std::string fish_completion(const CompletedProgram& program);

}  // namespace gpulet::tools
