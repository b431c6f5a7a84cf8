// The processes that serve gpulets, seen from their parent. ProxyProcess serves one gpulet.
// DeviceProcess serves all gpulets of a device whose shares change in place, each by a worker.
//
// A process is started in a process group of its own (the parent handles a Ctrl-C at the terminal),
// with no open descriptors except its standard streams and its channels, as another user if the
// options name one, and without a way to gain privileges. The thread that starts a process must
// outlive it: the process dies with that thread. Destroying the object kills the process and waits
// for its end.
//
// Single-strand types on the executor given.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "gpulet/net/asio.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"

namespace gpulet::backend {

// ---- proxy
//
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
  // The same for a batch that is synthetic: nothing is written there, and run() has the proxy make
  // the zeros that the slot does not have yet.
  [[nodiscard]] virtual std::optional<MutableBytes> take_zeros(std::size_t bytes) = 0;
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

// ---- proxy process

// The user that a proxy runs as, if it is not the backend's: models are programs, and a backend
// that is root should not run them as root.
struct ProxyUser {
  std::string name;
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;  // supplementary: those that own the GPU device nodes
};

struct ProxyConfinement {
  bool sandbox = true;                   // confine/confine.h
  std::vector<std::string> variables{};  // environment variables to pass on beside the usual ones
  bool native_models = false;            // models may be native code (executor/executor.h)
  std::filesystem::path onnxruntime{};   // the library; empty: of this process's environment
};

struct ProxyOptions {
  std::filesystem::path program;
  bool in_background = false;       // at a low priority until it loads, if the system allows that
  std::optional<ProxyUser> user{};  // empty: the user of this process
  std::map<std::string, std::string> environment{};  // overrides; set from the start
  ProxyConfinement confinement{};
  // Gets each line that the process writes to its standard output and error, cut and limited in
  // rate, with its control characters. Empty: the process has the standard streams of this one.
  std::function<void(pid_t process, const std::string& line)> on_output{};
};

// Started as `PROGRAM --control-fd 3 --memory-fd 4 --files-fd 5`. The process may start before its
// gpulet is known: load() tells it everything.
class ProxyProcess : public Proxy {
 public:
  // Fails with not_found (no such program) or unavailable (no memory, no process), naming what
  // failed.
  [[nodiscard]] static Result<std::unique_ptr<ProxyProcess>> start(
      const net::asio::any_io_executor& executor, const ProxyOptions& options,
      ProxyCallbacks callbacks);
};

// Started as `PROGRAM --lanes-fd 3`, without a gpulet. It keeps the models that its workers load,
// for later workers.
//
// The end of a worker does not affect the process or other workers. A worker that does not end in
// time can only be ended with the process, which is then killed. If the process reports a lost
// device, the device is lost for all workers. When the process ends, each worker's on_exit reports
// it. Workers and process may be destroyed in any order, also inside their callbacks.
class DeviceProcess {
 public:
  // Called once, after the process has ended and before the on_exit of its workers. Not called once
  // the DeviceProcess is destroyed.
  using OnEnd = std::function<void(const Status& how)>;

  // Fails as ProxyProcess::start.
  [[nodiscard]] static Result<std::unique_ptr<DeviceProcess>> start(
      const net::asio::any_io_executor& executor, const ProxyOptions& options, OnEnd on_end);

  [[nodiscard]] pid_t pid() const;
  // False once it has ended, is ending, or has lost its device.
  [[nodiscard]] bool accepts_workers() const;

  // Adds the worker of a gpulet, which serves after load(). Its share is kExpectedShareVariable of
  // the environment in LoadModels; the other variables have an effect for the first worker only.
  // Fails with unavailable.
  [[nodiscard]] Result<std::unique_ptr<Proxy>> add_worker(ProxyCallbacks callbacks);

  // Kills the process; `reason` is reported as the reason for its end.
  void kill(Status reason);

  ~DeviceProcess();
  DeviceProcess(const DeviceProcess&) = delete;
  DeviceProcess& operator=(const DeviceProcess&) = delete;

 private:
  class Impl;
  class Worker;
  explicit DeviceProcess(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with its workers
};

}  // namespace gpulet::backend
