// SimulatedExecutor: stands in for a device. It computes nothing: a batch takes the latency that
// came with it, and each answer identifies its request.
//
// The output has the layout of every executor. In each output tensor, the part of request i holds
// that request's input bytes (its inputs one after another), repeated or cut to the output's size.
// A BYTES output holds the elements at their start, or empty ones if there are too few or too long.
// A latency of zero answers at once. Used by one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gpulet/executor/executor.h"

namespace gpulet::executor {

// Sleeps until `end`. Sets the calling thread's timer slack to its minimum first: the default of
// 50 us would be a systematic error of every simulated batch.
void sleep_until_precisely(std::chrono::steady_clock::time_point end);

class SimulatedExecutor : public Executor {
 public:
  using WaitUntil = std::function<void(std::chrono::steady_clock::time_point)>;

  explicit SimulatedExecutor(WaitUntil wait_until = sleep_until_precisely);

  // The file need not exist. The variant is always 0. Fails with invalid if a declared shape has no
  // size.
  [[nodiscard]] Result<std::uint32_t> load(const ModelToLoad& model) override;

  // Returns `simulated_latency` after the call.
  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override;

 private:
  struct Model {
    std::vector<std::size_t> input_sizes;  // bytes of one request's part of each tensor
    std::vector<std::size_t> output_sizes;
    std::vector<std::size_t> output_elements;  // of BYTES; 0: numbers
  };

  WaitUntil wait_until_;
  std::map<std::string, Model, std::less<>> models_;
};

}  // namespace gpulet::executor
