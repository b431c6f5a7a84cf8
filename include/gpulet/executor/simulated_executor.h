// SimulatedExecutor: stands in for a device that is not there. It computes nothing: a batch takes
// the latency that came with it, and the answer tells whose question it was.
//
// Output layout as for every executor. In each output, the part of request i is the request's own
// input bytes (its inputs one after another), repeated or cut to the output's size. A latency of
// zero answers at once. Used by one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gpulet/executor/executor.h"

namespace gpulet::executor {

// Sleeps until then. Shrinks the calling thread's timer slack first: the usual 50 us would be a
// systematic error of every simulated batch.
void sleep_until_precisely(std::chrono::steady_clock::time_point end);

class SimulatedExecutor final : public Executor {
 public:
  using WaitUntil = std::function<void(std::chrono::steady_clock::time_point)>;

  explicit SimulatedExecutor(WaitUntil wait_until = sleep_until_precisely);

  // The file need not exist, and has no forms: 0. Fails with invalid where a declared shape has no
  // size.
  [[nodiscard]] Result<std::uint32_t> load(const ModelToLoad& model) override;

  // Returns `simulated_latency` after it was called.
  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override;

 private:
  struct Model {
    std::vector<std::size_t> input_sizes;  // bytes of one request's part of each input
    std::vector<std::size_t> output_sizes;
  };

  WaitUntil wait_until_;
  std::map<std::string, Model, std::less<>> models_;
};

}  // namespace gpulet::executor
