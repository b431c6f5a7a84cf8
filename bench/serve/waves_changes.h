// The case --changes of bench_serve_waves: what changes of plans cost models that they do not
// concern, where models take long to load.
#pragma once

#include <cstdint>
#include <string>

namespace gpulet::bench {

struct ChangesArguments {
  double seconds = 320;  // the first half without changes
  std::uint64_t seed = 1;
  bool parked = false;  // backends keep and load processes for later gpulets
  std::string keep;
  std::string programs;
};

// Prints what it measured and the verdicts. Returns the exit code. Throws std::runtime_error.
[[nodiscard]] int run_changes(const ChangesArguments& arguments);

}  // namespace gpulet::bench
