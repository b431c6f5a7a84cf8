// ProxyProcess: the process of one gpulet, seen from its parent.
//
// The program is started as `PROGRAM --control-fd 3 --memory-fd 4 --files-fd 5` in a process group
// of its own (a Ctrl-C at the terminal is for the parent to handle), with nothing else open but the
// standard streams, as another user where the options name one, and without a way to more rights.
// It may be started before its gpulet is known: load() tells it everything. Frames go over fd 3
// (serve::ProxyCommand out, serve::ProxyMessage in); fd 4 is shared memory, from load() on cut into
// slots of one input and one output area each. A batch is received straight into a slot, run, and
// its outputs leave as Bytes that point into the slot; the slot is free again when the last of them
// is gone. Models' files go over fd 5 as open descriptors: a proxy needs no way to where they are.
//
// Single-strand type on the executor given; callbacks come from there, never from within a call,
// and on_exit is the last one. Destroying it (also inside a callback) kills the process, waits for
// its end and makes no more callbacks (but `end`). The parent's thread that starts a proxy must
// outlive it: proxies die with that thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "gpulet/backend/proxy_user.h"
#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/serve/messages.h"

namespace gpulet::backend {

struct ProxyOptions {
  std::filesystem::path program;
  bool in_background = false;  // below this process's priority until it loads, where that can be
  std::optional<ProxyUser> user{};  // nothing: whom this process is
};

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
  // The process has ended and every answer that it gave was told; batches without one have none.
  // ok: it ended by itself with exit code 0. Otherwise how it ended, or why it was killed.
  std::function<void(Status reason)> on_exit;
  // Asked, within whatever call decides so, when a process that was given models must be ended.
  // True: somebody sees to it, and it will end in a while. Empty, or false: it is killed.
  std::function<bool(pid_t process)> end{};
};

class ProxyProcess {
 public:
  // Fails with not_found (no such program) or unavailable (no memory, no process), naming what
  // failed.
  [[nodiscard]] static Result<std::unique_ptr<ProxyProcess>> start(
      const net::asio::any_io_executor& executor, const ProxyOptions& options,
      ProxyCallbacks callbacks);

  [[nodiscard]] pid_t pid() const;

  // From now on these are called in place of those before, which hear of nothing any more.
  // REQUIRES: not called within a callback.
  void hand_over(ProxyCallbacks callbacks);

  // The first command; fills in the size of the memory. Fails where there is no such memory
  // (invalid, unavailable) or a model's file cannot be read (unavailable); no command was sent
  // then. REQUIRES: called once.
  [[nodiscard]] Status load(serve::LoadModels models, const SlotOptions& slots);

  // Input memory of a free slot; empty before load(), and where none is free or `bytes` is beyond
  // the input capacity.
  [[nodiscard]] std::optional<MutableBytes> take_slot(std::size_t bytes);
  // Whether these bytes are the beginning of one of this process's slots.
  [[nodiscard]] bool holds(const Bytes& input) const;
  // Runs a batch whose input is in a slot; fills in the offsets. REQUIRES: holds(input).
  void run(serve::RunBatch batch, Bytes input);

  // Lets it finish what it was given and end; kills it after `deadline`.
  void stop(Duration deadline);
  // Ends it, by SIGKILL where nobody else does; on_exit will give the reason.
  void kill(Status reason);

  ~ProxyProcess();
  ProxyProcess(const ProxyProcess&) = delete;
  ProxyProcess& operator=(const ProxyProcess&) = delete;

 private:
  class Impl;
  explicit ProxyProcess(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with operations in flight
};

}  // namespace gpulet::backend
