// ModelRunner: the shared memory, the executor and the models of one gpulet. It carries out
// LoadModels and RunBatch.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gpulet/base/status.h"
#include "gpulet/core/ids.h"
#include "gpulet/executor/executor.h"
#include "gpulet/partition/traits.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"
#include "proxy/image_stage.h"
#include "proxy/proxy.h"

namespace gpulet::proxy {

using Clock = std::chrono::steady_clock;

// ---- the share check; pure
//
// A partitioning that caps a process through its environment gives it the whole device if the cap
// does not take effect, at the cost of the other gpulets and without an error. A process that
// expects a share therefore serves only if the device reports that it holds the process to that
// share.

struct ExpectedShare {
  std::optional<Share> share;
  std::uint32_t device_sms = 0;  // 0: not known
};
// Parses the values of kExpectedShareVariable and kDeviceSmsVariable (partition/driver.h); null:
// not set. Fails with invalid, naming the variable.
[[nodiscard]] Result<ExpectedShare> parse_expected_share(const char* share, const char* device_sms);

// Returns what was found, with the device's SMs from `expected` if the device does not report them.
// Fails with unavailable if the share is not held, or is larger than expected by more than the
// coarsest step of any GPU.
[[nodiscard]] Result<partition::FoundShare> check_share(const ExpectedShare& expected,
                                                        partition::FoundShare found);

// ---- running

// Sets variables of this process. REQUIRES: no other thread uses the environment.
void set_environment(const std::map<std::string, std::string>& environment);

// The memory that is shared with the backend; unmapped by the destructor.
class SharedMemory {
 public:
  // Fails with invalid if the file is smaller than `bytes` or is not a file.
  [[nodiscard]] static Result<SharedMemory> map(int fd, std::uint64_t bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit SharedMemory(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

// Makes the executor of the gpulet with these models.
using MakeExecutor = std::function<Result<std::unique_ptr<executor::Executor>>(const LoadModels&)>;

struct BegunBatch {
  BatchRan ran;  // complete if `running` is null
  Clock::time_point arrived;
  Clock::time_point begun;
  std::unique_ptr<executor::RunningBatch> running;  // null: the batch has ended
};

// Used and destroyed by one thread, except for set_failure().
class ModelRunner {
 public:
  // `peer_is_gone` is called before each model; the rest is not loaded if it returns true.
  ModelRunner(const ProxyOptions& options, MakeExecutor make_executor,
              std::function<bool()> peer_is_gone);

  [[nodiscard]] ProxyReady load(const LoadModels& command);
  // Runs a batch to its end.
  [[nodiscard]] BatchRan run(const RunBatch& batch, Clock::time_point arrived);
  // Starts a batch. REQUIRES: depth() is above 1 and fewer batches are in flight.
  [[nodiscard]] BegunBatch begin(const RunBatch& batch, Clock::time_point arrived);

  // The depth of the executor; 1 before load().
  [[nodiscard]] std::size_t depth() const;
  // As Executor::condition. Any thread. REQUIRES: load() succeeded.
  [[nodiscard]] std::optional<partition::ProcessCondition> condition() const;
  // Fills in the failure of a batch. Called on the thread on which the executor reported it.
  // `detail`: Executor::failure_text.
  void set_failure(BatchRan& ran, const Status& why, std::string detail) const;

 private:
  Status prepare(const LoadModels& command, FailureCause& cause);
  Result<partition::FoundShare> find_share(const LoadModels& command);
  Status load_models(const LoadModels& command, ProxyReady& ready);
  Result<std::uint32_t> load(const ModelToLoad& model);
  Result<executor::BatchToRun> check(const RunBatch& batch, Duration waited) const;
  // Decodes the images of the batch, and notes in `ran` how that went.
  Status decode_images(executor::BatchToRun& batch, BatchRan& ran);

  const ProxyOptions& options_;
  const MakeExecutor make_executor_;
  const std::function<bool()> peer_is_gone_;
  std::optional<SharedMemory> memory_;
  ImageStage images_;
  std::unique_ptr<executor::Executor> executor_;  // after memory_, which it may have registered
};

}  // namespace gpulet::proxy
