// Proxy: what serves one gpulet, seen from its backend: a process of its own (proxy_process.h), or
// a lane of the process that serves a whole device (device_process.h).
//
// Frames go over its channel (serve::ProxyCommand out, serve::ProxyMessage in). Its memory is
// shared, from load() on cut into slots of one input and one output area each: a batch is received
// straight into a slot, run, and its outputs leave as Bytes that point into the slot; the slot is
// free again when the last of them is gone. Models' files are given to it as open descriptors: a
// proxy needs no way to where they are.
//
// Single-strand type on its executor; callbacks come from there, never from within a call, and
// on_exit is the last one. Destroying it (also inside a callback) ends what serves the gpulet, and
// makes no more callbacks (but `end`).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "gpulet/core/bytes.h"
#include "gpulet/core/process_end.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/serve/messages.h"

namespace gpulet::backend {

struct SlotOptions {
  std::uint32_t slots = 4;         // 1..64: two batches in flight, two more being received or sent
  std::size_t input_capacity = 0;  // of one batch
  std::size_t output_capacity = 0;
};

struct ProxyCallbacks {
  std::function<void()> on_idle{};                        // it has started, and waits for load()
  std::function<void(serve::ProxyReady ready)> on_ready;  // the answer to load()
  // The answer to run(). `outputs` is empty unless the batch ran.
  std::function<void(serve::BatchRan ran, Bytes outputs)> on_ran;
  // It has ended and every answer that it gave was told; batches without one have none. ok: it
  // ended by itself, a process with exit code 0. Otherwise how it ended, or why it was killed.
  std::function<void(Status reason)> on_exit;
  // Asked, within whatever call decides so, when a process of one gpulet that was given models must
  // be ended. True: somebody sees to it, and it will end in a while. Empty, or false: it is killed.
  std::function<bool(pid_t process)> end{};
};

class Proxy {
 public:
  Proxy() = default;
  virtual ~Proxy() = default;
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  [[nodiscard]] virtual pid_t pid() const = 0;
  // How the process ended, while on_exit is called. Of a lane whose process goes on, nothing.
  [[nodiscard]] virtual ProcessEnd process_end() const = 0;

  // The first command; fills in the size of the memory. Fails where there is no such memory
  // (invalid, unavailable) or a model's file cannot be read (not_found); no command was sent
  // then. REQUIRES: called once.
  [[nodiscard]] virtual Status load(serve::LoadModels models, const SlotOptions& slots) = 0;

  // Input memory of a free slot; empty before load(), and where none is free or `bytes` is beyond
  // the input capacity.
  [[nodiscard]] virtual std::optional<MutableBytes> take_slot(std::size_t bytes) = 0;
  // Whether these bytes are the beginning of one of this proxy's slots.
  [[nodiscard]] virtual bool holds(const Bytes& input) const = 0;
  // Runs a batch whose input is in a slot; fills in the offsets. REQUIRES: holds(input).
  virtual void run(serve::RunBatch batch, Bytes input) = 0;

  // Lets it finish what it was given and end; kills its process after `deadline`.
  virtual void stop(Duration deadline) = 0;
  // Ends it; on_exit will give the reason.
  virtual void kill(Status reason) = 0;
};

}  // namespace gpulet::backend
