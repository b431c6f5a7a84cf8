// The scripts that complete a program's command line in a shell, made from what it declares. Names
// of models they ask the program for (`completion models`), which asks the frontend that the
// command line names. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpulet::tools {

// What is offered for a value that has no choices.
enum class Offer : std::uint8_t { files, models };

struct CompletedOption {
  std::vector<std::string> names;  // with their dashes
  std::string description;
  bool takes_value = false;
  std::vector<std::string> choices{};  // of its value
  Offer offer = Offer::files;          // where there are none
};

struct CompletedCommand {
  std::string path;  // "gpulet models load"
  std::string description;
  std::vector<CompletedOption> options;
  std::vector<std::string> choices{};  // of what stands without a name
  Offer offer = Offer::files;          // where there are none
};

// A program's command and all below it, each after the one that it belongs to; the first is the
// program itself. REQUIRES: at least that.
using CompletedProgram = std::vector<CompletedCommand>;

[[nodiscard]] std::string bash_completion(const CompletedProgram& program);
[[nodiscard]] std::string zsh_completion(const CompletedProgram& program);
[[nodiscard]] std::string fish_completion(const CompletedProgram& program);

}  // namespace gpulet::tools
