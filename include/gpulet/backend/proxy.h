// Proxy: the process or the worker that serves one gpulet, seen from its backend
// (proxy_process.h).
//
// Its channel carries frames (ProxyCommand out, ProxyMessage in). From load() on, its
// shared memory is divided into slots of one input and one output area. A batch is received
// directly into a slot; its outputs are Bytes that point into the slot, which is free again when
// the last of them is destroyed. Model files are passed as open descriptors, so that a proxy needs
// no access to their directory.
//
// Single-strand type on its executor. Callbacks run on the executor, never within a call; on_exit
// is the last one. Destroying a Proxy, also inside a callback, ends what serves the gpulet; only
// `end` may be called afterwards.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::backend {

struct SlotOptions {
  std::uint32_t slots = 4;         // 1..64: two batches in flight, two being received or sent
  std::size_t input_capacity = 0;  // bytes of one batch
  std::size_t output_capacity = 0;
};

struct ProxyCallbacks {
  std::function<void()> on_idle{};                 // it has started and waits for load()
  std::function<void(ProxyReady ready)> on_ready;  // the answer to load()
  // The answer to run(). `outputs` is empty unless the batch ran.
  std::function<void(BatchRan ran, Bytes outputs)> on_ran;
  // It has ended, and all of its answers were delivered; other batches have none. ok: it ended by
  // itself, a process with exit code 0. Otherwise how it ended, or why it was killed.
  std::function<void(Status reason)> on_exit;
  // Called when the process of one gpulet must end after it was given models. Returns true if the
  // callee ends the process, which may take a while. Empty or false: the process is killed.
  std::function<bool(pid_t process)> end{};
};

class Proxy {
 public:
  Proxy() = default;
  virtual ~Proxy() = default;
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  [[nodiscard]] virtual pid_t pid() const = 0;
  // How the process ended; valid while on_exit is called. Empty for a worker whose process goes on.
  [[nodiscard]] virtual ProcessEnd process_end() const = 0;

  // Replaces the callbacks. REQUIRES: not called within a callback.
  virtual void set_callbacks(ProxyCallbacks callbacks) = 0;

  // Sends the first command and fills in the size of the memory. Fails without sending it if the
  // memory cannot be allocated (invalid, unavailable) or a model file cannot be read (not_found).
  // REQUIRES: called once.
  [[nodiscard]] virtual Status load(LoadModels models, const SlotOptions& slots) = 0;

  // Takes the input memory of a free slot. Empty before load(), if no slot is free, or if `bytes`
  // exceeds the input capacity.
  [[nodiscard]] virtual std::optional<MutableBytes> take_slot(std::size_t bytes) = 0;
  // Whether these bytes are at the beginning of one of this proxy's slots.
  [[nodiscard]] virtual bool holds(const Bytes& input) const = 0;
  // Runs a batch whose input is in a slot; fills in the offsets. REQUIRES: holds(input).
  virtual void run(RunBatch batch, Bytes input) = 0;

  // Lets it finish its batches and end. Kills its process after `deadline`.
  virtual void stop(Duration deadline) = 0;
  // Ends it at once; on_exit reports the reason. A process gets SIGKILL, unless ProxyCallbacks::end
  // ends it.
  virtual void kill(Status reason) = 0;
};

}  // namespace gpulet::backend
