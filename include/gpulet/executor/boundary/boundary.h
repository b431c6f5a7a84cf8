// The boundary between an executor that was built with one C++ ABI and a program that was built
// with the other: libstdc++ has two std::strings (_GLIBCXX_USE_CXX11_ABI), so objects that contain
// one cannot cross. Inside is a shared library that is built with the executor's ABI and exports
// one function, which returns a Boundary; outside, make_executor() wraps it in an Executor.
//
// Only a table of function pointers and trivially copyable values cross, with views in place of
// strings and vectors. The caller owns the arguments; the callee copies what must outlast the call.
// Neither side frees memory of the other, and no exception crosses. Both sides must be compiled
// from the same headers: each has their stamp, and a library with another stamp is rejected.
//
// Threads: as Executor, RunningBatch and SharedDevice (executor.h). The boundary adds no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "gpulet/base/status.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/tensor.h"
#include "gpulet/executor/executor.h"
#include "gpulet/partition/traits.h"

namespace gpulet::executor::boundary {

// What the library of the inner side was built with.
struct Abilities {
  bool cuda = false;
  bool packages = false;  // of AOTInductor
};

// The factories of the inner side.
struct Makers {
  Abilities abilities;
  void (*prepare)();  // may throw
  // Throws std::invalid_argument if there is no such device name.
  std::unique_ptr<Executor> (*make_executor)(const std::string& device);
  Result<std::unique_ptr<SharedDevice>> (*make_shared_device)(const std::string& device);
};

// Defined on the inner side only. The outer side holds pointers and returns each once, by drop_*.
struct InnerExecutor;
struct InnerBatch;
struct InnerDevice;

// Receives the message of a failure, of any length, before the failed call returns.
struct Listener {
  void* place;  // belongs to the receiver
  void (*tell)(void* place, const char* message, std::size_t size);
};

// As InputConversion; without means: there is none.
struct Conversion {
  DataType type;
  bool from_channels_last;
  bool to_channels_last;
  double scale;
  std::span<const double> mean;
  std::span<const double> deviation;
};

struct Tensor {
  std::string_view name;
  DataType type;
  std::span<const std::int64_t> shape;
  std::size_t max_bytes;
  Conversion conversion;
  bool has_range;
  ValueRange range;
  bool whole;
};

struct Model {
  std::string_view name;
  std::string_view file;
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;
  std::uint32_t max_batch;
  std::uint32_t variant;
  Numerics numerics;
  std::span<const std::uint32_t> planned_batches;
};

static_assert(std::is_trivially_copyable_v<Model> && std::is_trivially_copyable_v<Tensor> &&
              std::is_trivially_copyable_v<Conversion> && std::is_trivially_copyable_v<Abilities> &&
              std::is_trivially_copyable_v<BatchToRun> && std::is_trivially_copyable_v<Share> &&
              std::is_trivially_copyable_v<partition::FoundShare> &&
              std::is_trivially_copyable_v<partition::LoadStages> &&
              std::is_trivially_copyable_v<partition::ProcessCondition>);

// Each function does what the function of that name in executor.h does. A function that can fail
// returns its code, and writes its result through the last pointer only on ok.
struct Boundary {
  const char* stamp;  // always the first member, so that any version can check it
  const Makers* makers;
  Abilities abilities;

  StatusCode (*prepare)(const Makers* makers, Listener listener);
  StatusCode (*make_executor)(const Makers* makers, std::string_view device, InnerExecutor** made,
                              Listener listener);
  StatusCode (*make_shared_device)(const Makers* makers, std::string_view device,
                                   InnerDevice** made, Listener listener);
  StatusCode (*add_executor)(InnerDevice* device, Share share,
                             std::span<const std::string_view> models, InnerExecutor** made,
                             Listener listener);

  StatusCode (*use_memory)(InnerExecutor* executor, std::span<std::byte> memory, Listener listener);
  StatusCode (*found_share)(InnerExecutor* executor, partition::FoundShare* found,
                            Listener listener);
  partition::DeviceHealth (*health)(const InnerExecutor* executor);
  StatusCode (*load)(InnerExecutor* executor, const Model* model, std::uint32_t* variant,
                     Listener listener);
  partition::LoadStages (*load_stages)(const InnerExecutor* executor);
  StatusCode (*serving)(InnerExecutor* executor, Listener listener);
  // False: there is none.
  bool (*condition)(const InnerExecutor* executor, partition::ProcessCondition* condition);
  double (*error_of)(const InnerExecutor* executor, std::uint32_t variant);
  StatusCode (*run)(InnerExecutor* executor, const BatchToRun* batch, std::size_t* written,
                    Listener listener);
  void (*failure_text)(const InnerExecutor* executor, Listener listener);
  std::size_t (*depth)(const InnerExecutor* executor);
  StatusCode (*begin)(InnerExecutor* executor, const BatchToRun* batch, InnerBatch** begun,
                      Listener listener);
  StatusCode (*finish)(InnerBatch* batch, std::size_t* written, Listener listener);

  void (*drop_device)(InnerDevice* device);
  void (*drop_executor)(InnerExecutor* executor);
  void (*drop_batch)(InnerBatch* batch);
};

// The digest of the headers that both sides share, computed by this module's CMakeLists.txt.
// Zero-terminated.
[[nodiscard]] const char* stamp();

// Inner side. Turns exceptions into failures: invalid for std::invalid_argument, else internal.
// `makers` must outlive all use.
[[nodiscard]] Boundary boundary_to(const Makers& makers);

// Outer side. Opens a shared library and calls its function `shown`, which takes no argument and
// returns a `const Boundary*`. The dynamic linker searches for a name without a slash. The library
// stays open until the process ends. Fails with unavailable (the library cannot be loaded) or
// invalid (it has no such function, or another stamp).
[[nodiscard]] Result<const Boundary*> open_boundary(const std::filesystem::path& library,
                                                    const char* shown);

// Outer side. `boundary` must outlive the results. prepare() throws std::runtime_error if the inner
// side threw. make_executor() throws std::invalid_argument if the inner side failed with invalid,
// else std::runtime_error.
void prepare(const Boundary& boundary);
[[nodiscard]] std::unique_ptr<Executor> make_executor(const Boundary& boundary,
                                                      std::string_view device);
[[nodiscard]] Result<std::unique_ptr<SharedDevice>> make_shared_device(const Boundary& boundary,
                                                                       std::string_view device);

}  // namespace gpulet::executor::boundary
