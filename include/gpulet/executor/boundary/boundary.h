// The border between an executor whose libraries were built with one C++ ABI and a program of the
// other: libstdc++ has two std::strings (_GLIBCXX_USE_CXX11_ABI), and of whatever holds one, ours
// and the libraries'. Inside is a shared library that is all of the executor's ABI and shows
// one function, which returns a Boundary; outside, that is an Executor like any other.
//
// Across go functions without a name, in a table, and values that are the same in both: trivially
// copyable, with views (of no ABI) in place of strings and vectors. What goes in is the caller's
// and is copied where it must outlast the call. Nothing that one side allocated is freed by the
// other, and no exception crosses. Both sides must be compiled from the same headers: each has
// their stamp, and a library of another stamp is not used.
//
// Threads as with Executor, RunningBatch and SharedDevice (executor.h, shared_device.h): nothing is
// locked or kept here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "gpulet/core/numerics.h"
#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/executor/executor.h"
#include "gpulet/executor/shared_device.h"
#include "gpulet/partition/found_device.h"

namespace gpulet::executor::boundary {

// How one makes what is inside, in the words of that side.
struct Makers {
  void (*prepare)();  // may throw
  // Throws std::invalid_argument on a device of no such name.
  std::unique_ptr<Executor> (*make_executor)(const std::string& device);
  Result<std::unique_ptr<SharedDevice>> (*make_shared_device)(const std::string& device);
};

// What only the inner side knows; the other holds pointers to it and gives each back once.
struct InnerExecutor;
struct InnerBatch;
struct InnerDevice;

// Takes the message of a failure, of any length, before the call that failed returns.
struct Listener {
  void* place;  // the listening side's
  void (*tell)(void* place, const char* message, std::size_t size);
};

struct Tensor {
  std::string_view name;
  DataType type;
  std::span<const std::int64_t> shape;
};

struct Model {
  std::string_view name;
  std::string_view file;
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;
  std::uint32_t max_batch;
  std::uint32_t form;
  Numerics numerics;
};

static_assert(std::is_trivially_copyable_v<Model> && std::is_trivially_copyable_v<Tensor> &&
              std::is_trivially_copyable_v<BatchToRun> && std::is_trivially_copyable_v<Share> &&
              std::is_trivially_copyable_v<partition::FoundShare>);

// Each does what its namesake in the interfaces does. Those that can fail return the code, and what
// they were to return is written where the last pointer shows, only on ok.
struct Boundary {
  const char* stamp;  // first, wherever the rest of the table goes
  const Makers* makers;

  StatusCode (*prepare)(const Makers* makers, Listener listener);
  StatusCode (*make_executor)(const Makers* makers, std::string_view device, InnerExecutor** made,
                              Listener listener);
  StatusCode (*make_shared_device)(const Makers* makers, std::string_view device,
                                   InnerDevice** made, Listener listener);
  StatusCode (*add_lane)(InnerDevice* device, Share share, InnerExecutor** made, Listener listener);

  StatusCode (*use_memory)(InnerExecutor* executor, std::span<std::byte> memory, Listener listener);
  StatusCode (*found_share)(InnerExecutor* executor, partition::FoundShare* found,
                            Listener listener);
  partition::DeviceHealth (*health)(const InnerExecutor* executor);
  StatusCode (*load)(InnerExecutor* executor, const Model* model, std::uint32_t* form,
                     Listener listener);
  double (*error_of)(const InnerExecutor* executor, std::uint32_t form);
  StatusCode (*run)(InnerExecutor* executor, const BatchToRun* batch, std::size_t* written,
                    Listener listener);
  std::size_t (*depth)(const InnerExecutor* executor);
  StatusCode (*begin)(InnerExecutor* executor, const BatchToRun* batch, InnerBatch** begun,
                      Listener listener);
  StatusCode (*finish)(InnerBatch* batch, std::size_t* written, Listener listener);

  void (*drop_device)(InnerDevice* device);
  void (*drop_executor)(InnerExecutor* executor);
  void (*drop_batch)(InnerBatch* batch);
};

// A digest of the headers that both sides share (CMakeLists.txt of this module computes it). Ends
// with a zero.
[[nodiscard]] const char* stamp();

// Inside. An exception becomes a failure: invalid for std::invalid_argument, else internal.
// `makers` must outlive all use.
[[nodiscard]] Boundary boundary_to(const Makers& makers);

// Outside. Opens a shared library and calls its function `shown`, which takes nothing and returns a
// `const Boundary*`. A name without a slash is looked for where the dynamic linker looks. The
// library stays open until the process ends. Fails with unavailable (the library cannot be loaded)
// or invalid (it has no such function, or another stamp).
[[nodiscard]] Result<const Boundary*> open_boundary(const std::filesystem::path& library,
                                                    const char* shown);

// Outside. `boundary` must outlive what is made. The first throws std::runtime_error where inside
// something was thrown, the second std::invalid_argument where it failed with invalid, else
// std::runtime_error.
void prepare(const Boundary& boundary);
[[nodiscard]] std::unique_ptr<Executor> make_executor(const Boundary& boundary,
                                                      std::string_view device);
[[nodiscard]] Result<std::unique_ptr<SharedDevice>> make_shared_device(const Boundary& boundary,
                                                                       std::string_view device);

}  // namespace gpulet::executor::boundary
