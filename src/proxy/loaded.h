// Loaded: a gpulet's memory, executor and models, from LoadModels on. Used, and destroyed, by one
// thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "gpulet/core/status.h"
#include "gpulet/executor/executor.h"
#include "gpulet/proxy/proxy.h"
#include "gpulet/serve/messages.h"
#include "proxy/shared_memory.h"

namespace gpulet::proxy {

using Clock = std::chrono::steady_clock;

// The executor of the gpulet that these models make.
using MakeExecutor =
    std::function<Result<std::unique_ptr<executor::Executor>>(const serve::LoadModels&)>;

// A batch that was looked at: on its way, or ended before it began.
struct BegunBatch {
  serve::BatchRan ran;  // as far as it is known
  Clock::time_point arrived;
  Clock::time_point begun;
  std::unique_ptr<executor::RunningBatch> running;  // null: it has ended, and `ran` is its answer
};

class Loaded {
 public:
  // `peer_is_gone` is asked between models: nobody waits for the rest then.
  Loaded(const ProxyOptions& options, MakeExecutor make_executor,
         std::function<bool()> peer_is_gone);

  [[nodiscard]] serve::ProxyReady load(const serve::LoadModels& command);
  // Runs it to its end.
  [[nodiscard]] serve::BatchRan run(const serve::RunBatch& batch, Clock::time_point arrived);
  // Puts it on its way. REQUIRES: depth() is above 1, and fewer are on their way.
  [[nodiscard]] BegunBatch begin(const serve::RunBatch& batch, Clock::time_point arrived);

  // Of the executor; 1 where there is none.
  [[nodiscard]] std::size_t depth() const;
  // Of a batch that the executor failed to run, on the thread that it told.
  void fail(serve::BatchRan& ran, const Status& why) const;

 private:
  Status prepare(const serve::LoadModels& command, FailureCause& cause);
  Result<partition::FoundShare> find_share(const serve::LoadModels& command);
  Status load_models(const serve::LoadModels& command, serve::ProxyReady& ready);
  Result<std::uint32_t> load(const serve::LoadModel& model);
  Result<executor::BatchToRun> check(const serve::RunBatch& batch, Duration waited) const;

  const ProxyOptions& options_;
  const MakeExecutor make_executor_;
  const std::function<bool()> peer_is_gone_;
  std::optional<SharedMemory> memory_;
  std::unique_ptr<executor::Executor> executor_;  // after the memory, which it may know
};

}  // namespace gpulet::proxy
