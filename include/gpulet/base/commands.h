// Commands of `gpulet` that messages propose, with every option that the command requires, so that
// they run once the words in capitals are replaced. A test parses all commands that messages
// propose (tests/tools/proposed_commands_test.cc). Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace gpulet {

// Measures one model: DEVICE is cpu:0 or cuda:0, MODELS the models file, PROFILES the folder of
// profiles.
[[nodiscard]] inline std::string measure_command(std::string_view model) {
  return "gpulet profile run --only " + std::string(model) +
         " --device DEVICE --models MODELS --out PROFILES";
}

// Measures how the models of a device slow each other down.
[[nodiscard]] inline std::string measure_interference_command() {
  return "gpulet profile interference --device DEVICE --models MODELS --profile PROFILES";
}

}  // namespace gpulet
