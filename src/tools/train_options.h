// What `gpulet train` takes: declared for the command, which passes it on, and for gpulet-train,
// which does it. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own
class App;
}

namespace gpulet::tools {

struct TrainFlags {
  std::string cluster;
  std::string profiles;
  std::string demand;
  std::uint64_t episodes = 1500;
  std::uint32_t steps = 200;  // of an episode
  std::uint64_t seed = 1;
  double discount = 0.99;
  std::string resume;  // a checkpoint; empty: from the beginning
  std::string out = "placement.policy";
  bool no_interference = false;  // plans know nothing of neighbours; serving still feels them
  std::uint32_t threads = 2;
  bool json = false;
};

void add_train_flags(CLI::App& command, TrainFlags& flags);

// The same flags as arguments of a program.
[[nodiscard]] std::vector<std::string> arguments_of(const TrainFlags& flags);

}  // namespace gpulet::tools
