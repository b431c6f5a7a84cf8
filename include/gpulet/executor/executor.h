// Executor: runs the batches of one gpulet's models on its share of a device. SharedDevice: makes
// one Executor for each gpulet that one process serves.
//
// One thread uses an Executor, except for RunningBatch::finish and health. Errors are Status
// values; exceptions of a library below end inside the implementation. Layout of inputs and
// outputs: core/request.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/tensor.h"
#include "gpulet/partition/traits.h"

namespace gpulet::executor {

// Environment variable of a proxy: "on" allows models that are native code, AOTInductor packages.
// Not set: off.
inline constexpr const char* kNativeModelsVariable = "GPULET_NATIVE_MODELS";

// Environment variable with the path of ONNX Runtime's library.
inline constexpr const char* kOnnxRuntimeVariable = "GPULET_ONNXRUNTIME";

struct BatchToRun {
  std::string_view model;
  std::uint32_t count = 0;
  std::span<const std::byte> input;  // exactly `count` times the model's input bytes
  std::span<std::byte> output;       // at least `count` times the model's output bytes
  Duration simulated_latency{};      // latency on a simulated device; real devices ignore it
};

// A batch in flight. The input and output memory must outlive finish(); the rest of the BatchToRun
// need not.
class RunningBatch {
 public:
  virtual ~RunningBatch() = default;

  // Waits for the end of the batch. Returns as Executor::run. Any thread, once, in the order in
  // which the batches were begun.
  [[nodiscard]] virtual Result<std::size_t> finish() = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Announces the memory that holds the input and output of every batch. Called once, before
  // load(); the memory outlives the executor. A device may copy faster from registered memory. Best
  // effort.
  virtual void use_memory(std::span<std::byte> /*memory*/) {}

  // Returns the share of the device that this process was given. Called once, before load(); it may
  // be the first use of the device. The default is for devices that do not enforce shares. Fails
  // with unavailable if the device cannot be used; health() says whether it may be usable later.
  [[nodiscard]] virtual Result<partition::FoundShare> found_share() {
    return partition::FoundShare{};
  }

  // Returns the health of the device. Called after a failure; after a failed RunningBatch::finish,
  // on the thread that called finish.
  [[nodiscard]] virtual partition::DeviceHealth health() const {
    return partition::DeviceHealth::works;
  }

  // Loads and warms up a model. Returns the variant that it chose, a number that has a meaning for
  // this executor only. ModelToLoad::variant passes it to the next load of the same file on this
  // kind of device, which then skips the choice. Fails, naming the file and the problem, with
  //   invalid      the file is at fault, for example its outputs differ from the declared ones
  //   not_found    there is no such file
  //   overloaded   this machine has too little memory
  //   unavailable  the device is at fault
  //   internal     any other failure
  // and leaves nothing of the model loaded.
  [[nodiscard]] virtual Result<std::uint32_t> load(const ModelToLoad& model) = 0;

  // Returns how long the stages of the last load() took. The default is for executors that do not
  // measure them.
  [[nodiscard]] virtual partition::LoadStages load_stages() const { return {}; }

  // All models are loaded, and batches may come. From now on the executor may prepare further batch
  // sizes on a thread of its own, in the gaps between batches.
  virtual void serving() {}

  // What changes while the executor serves; empty: its device knows none of it. Any thread.
  [[nodiscard]] virtual std::optional<partition::ProcessCondition> condition() const { return {}; }

  // Returns how far the outputs of that variant were from the outputs of the file, in the units of
  // Numerics::largest_error; 0 for a variant that computes as the file does.
  [[nodiscard]] virtual double error_of(std::uint32_t /*variant*/) const { return 0; }

  // Runs a batch to its end and returns the number of bytes written to `output`, each of which
  // belongs to this batch. Fails with not_found (the model is not loaded), internal (wrong sizes,
  // or an error of the library) or invalid (the model cannot compute this input but can compute
  // others). The message is for the client that sent the input; it contains no internal sizes of
  // the model.
  [[nodiscard]] virtual Result<std::size_t> run(const BatchToRun& batch) = 0;

  // What the library said of the failure of the last run() or begin(), for logs. Empty: the status
  // says all of it, or there was no failure. On the thread of that call.
  [[nodiscard]] virtual std::string failure_text() const { return {}; }

  // Returns the maximum number of batches in flight. If it is above 1, begin() overlaps the copies
  // of one batch with the computation of another.
  [[nodiscard]] virtual std::size_t depth() const { return 1; }

  // Starts a batch and returns. Fails as run() if the failure is known at once. `batch.model` need
  // not outlive the call. REQUIRES: depth() is above 1, fewer than depth() batches are in flight,
  // and no run() or load() is in progress.
  [[nodiscard]] virtual Result<std::unique_ptr<RunningBatch>> begin(const BatchToRun& /*batch*/) {
    return Status(StatusCode::internal, "this executor runs one batch at a time");
  }
};

// A device whose gpulets are served by one process. Models that several gpulets load are in memory
// once. Any thread; it must outlive its executors.
class SharedDevice {
 public:
  virtual ~SharedDevice() = default;

  // Makes an executor with that share of the device, for the models of these names; found_share()
  // returns what it was given. The share is released when the executor is destroyed. While a plan
  // is replaced, the shares may add up to more than the device. An executor then starts on what the
  // executors of the same models have and what is free, which may be less than its share, and gets
  // the rest when others are destroyed. One whose models nobody serves shares SMs until then
  // (Executor::condition). Each executor is used by a thread of its own. Fails with unavailable.
  [[nodiscard]] virtual Result<std::unique_ptr<Executor>> add_executor(
      Share share, std::span<const std::string> models) = 0;
};

// ---- for implementations; pure

// Bytes of one request's part of each tensor. Fails with invalid, naming the tensor.
[[nodiscard]] Result<std::vector<std::size_t>> tensor_sizes(const std::vector<TensorSpec>& specs);

// Fails with invalid where a model without a batch dimension is to take several requests at once.
[[nodiscard]] Status check_whole(const ModelToLoad& model);

// Fails with internal unless the batch has at least one request, its input has exactly the bytes of
// `count` requests and its output can hold theirs.
[[nodiscard]] Status check_sizes(const BatchToRun& batch,
                                 const std::vector<std::size_t>& input_sizes,
                                 const std::vector<std::size_t>& output_sizes);

// The failure of a batch of a model that is not loaded.
[[nodiscard]] Status not_loaded(std::string_view model);

// The failure of a batch whose input the model cannot compute, though it computes others: invalid.
// Passes a short sentence of the library on to the client only if it has no digits, which may be
// internal sizes of the model; failure_text() is the place for all of it.
[[nodiscard]] Status input_at_fault(std::string_view sentence);

// The failure of a batch of a model that computes no sample, either: internal.
[[nodiscard]] Status model_at_fault(std::string_view model);

}  // namespace gpulet::executor
