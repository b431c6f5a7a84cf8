// Executor: runs batches of loaded models, one after another, for one gpulet.
//
// Used by one thread, but for RunningBatch::finish and health. Errors are Status values; what a
// library below throws ends inside the implementation. Layout of inputs and outputs:
// core/request.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/numerics.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/core/time.h"
#include "gpulet/partition/found_device.h"

namespace gpulet::executor {

struct ModelToLoad {
  std::string name;
  std::filesystem::path file;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::uint32_t max_batch = 1;  // warmed for batches up to this one
  std::uint32_t form = 0;       // what an earlier load() of this file returned; 0: not known
  Numerics numerics{};
};

struct BatchToRun {
  std::string_view model;
  std::uint32_t count = 0;
  std::span<const std::byte> input;  // exactly count times the model's input bytes
  std::span<std::byte> output;       // at least count times the model's output bytes
  Duration simulated_latency{};      // what a simulated device takes for it; ignored by real ones
};

// A batch that was begun. Its areas, and nothing else of it, must outlive finish().
class RunningBatch {
 public:
  virtual ~RunningBatch() = default;

  // Waits for its end; as Executor::run. Any thread, once, in the order in which batches were
  // begun.
  [[nodiscard]] virtual Result<std::size_t> finish() = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;

  // The memory that all areas of batches will lie in, which outlives this. Told once, before
  // load(): a device may copy faster from memory that it knows. Best effort.
  virtual void use_memory(std::span<std::byte> /*memory*/) {}

  // What this process was given of its device. Asked once, before anything is loaded; it may be the
  // first use of the device. An executor whose device holds no shares by itself says so. Fails with
  // unavailable where the device cannot be used; health() says whether it may be later.
  [[nodiscard]] virtual Result<partition::FoundShare> found_share() {
    return partition::FoundShare{};
  }

  // How the device is, asked after a failure: of RunningBatch::finish, on the thread that called
  // it.
  [[nodiscard]] virtual partition::DeviceHealth health() const {
    return partition::DeviceHealth::works;
  }

  // Loads and warms. Returns the form in which the model is kept, a number that means something to
  // this executor only: it spares the next load of the same file on this kind of device finding
  // out. Fails naming the file and what is wrong: invalid where the file itself is at fault, for
  // example with outputs that differ from the declared ones; not_found where there is no such file;
  // overloaded where this machine has not enough memory; unavailable where the device is at fault;
  // internal where none of these is known. Nothing of the model stays loaded then.
  [[nodiscard]] virtual Result<std::uint32_t> load(const ModelToLoad& model) = 0;

  // How far a model that load() kept in that form is from the file, as Numerics::largest_error
  // counts it; 0 for one that computes as its file has it.
  [[nodiscard]] virtual double error_of(std::uint32_t /*form*/) const { return 0; }

  // Runs to the end and returns the bytes written to `output`. Fails with not_found (model not
  // loaded), internal (sizes, or the library's own words), or with invalid where the model cannot
  // compute what the input holds, and could compute another input: the message is for whoever sent
  // it, without sizes and numbers of the model.
  [[nodiscard]] virtual Result<std::size_t> run(const BatchToRun& batch) = 0;

  // How many batches it can have under way. Above 1, begin() overlaps the copies of one with the
  // execution of another.
  [[nodiscard]] virtual std::size_t depth() const { return 1; }

  // Puts a batch on its way and returns; fails as run() where that can be seen at once. REQUIRES:
  // depth() is above 1, and fewer batches than that are begun and not finished; no run() or load()
  // meanwhile. `batch.model` need not outlive the call.
  [[nodiscard]] virtual Result<std::unique_ptr<RunningBatch>> begin(const BatchToRun& /*batch*/) {
    return Status(StatusCode::internal, "this executor runs one batch at a time");
  }
};

}  // namespace gpulet::executor
