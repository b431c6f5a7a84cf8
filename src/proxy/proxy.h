// The process of one gpulet: reads commands from its backend, runs batches in their order and
// answers each. A process can also serve several gpulets of one device, which share loaded models:
// each gpulet then has a worker, a thread with its own channel and memory, and the text below
// applies to each worker.
//
// The process starts before its gpulet is known. It sends ProxyIdle once it has done everything
// that needs no model. LoadModels, its first command, brings the environment of the share, the size
// of the shared memory and the models.
//
// The control channel is one end of a Unix stream socket pair and carries frames (net/codec):
// ProxyCommand in, ProxyMessage out. Every command except StopProxy is answered, in the order of
// the commands. Tensors are in memory that is shared with the backend. Between RunBatch and its
// BatchRan, the proxy owns the input and output of the batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/executor/executor.h"

namespace gpulet::proxy {

struct ProxyOptions {
  int control_fd = -1;
  int memory_fd = -1;  // empty until LoadModels is sent; has its final size then
  // A Unix datagram socket that delivers the open model files in the order of LoadModels. -1: the
  // proxy opens files by name.
  int files_fd = -1;
  // For several gpulets, in place of the others: a Unix seqpacket socket that delivers the
  // descriptors above for each gpulet (proxy/workers.h). The argument is named --lanes-fd.
  int workers_fd = -1;
};

// The parts in which proxy programs differ.
struct Program {
  // Does the work of the executor's library at its first use, as far as it depends on neither the
  // share nor the models, so that the first gpulet need not wait for it. May be empty.
  std::function<void()> prepare;
  // Called once, when the environment of the share is set. The library may create threads and
  // access its device only from then on.
  std::function<std::unique_ptr<executor::Executor>()> make_executor;
  // The same for a process that serves several gpulets of one device. Called with the environment
  // of its first gpulet, until it succeeds once. Empty: the program cannot do this.
  std::function<Result<std::unique_ptr<executor::SharedDevice>>()> make_shared_device;
  // Runs a sample of a model and returns the shapes of its outputs. Empty: the program cannot do
  // this.
  std::function<Result<std::vector<std::vector<std::int64_t>>>(const ModelToLoad& model)>
      find_output_shapes{};
};

// Parses `--control-fd N --memory-fd N [--files-fd N]` or `--lanes-fd N`. Fails with invalid,
// naming the argument.
[[nodiscard]] Result<ProxyOptions> parse_arguments(std::span<const char* const> arguments);

// Serves one gpulet until StopProxy (commands before it are finished first) or until the peer
// closes the channel (queued commands are dropped), and then returns ok. Fails with malformed if a
// command cannot be decoded, with unavailable if the channel fails. The executor is made, called
// and destroyed on the calling thread. The channel stays open but is no longer readable afterwards.
// Changes the environment of the process, once.
//
// A batch waits for the ones before it. An executor with a depth above 1 has several batches in
// flight, but they end and are answered in order. A batch is rejected with too_late if its
// start_within has passed since it was read from the channel, and with invalid if its input and
// output overlap or lie outside of the memory.
//
// If the executor's depth is above 1, a second thread calls RunningBatch::finish and, after a
// failure of that, health.
[[nodiscard]] Status serve(const ProxyOptions& options, const Program& program);

// The main function of a proxy program. Ties the life of the process to its parent's, protects it
// from other processes of its user (no core file, no debugger, no /proc), gives up the network and
// the system calls that no model needs (confine/confine.h; not if $GPULET_SANDBOX is "off"), parses
// the arguments, prepares and serves. Without a GPU it also gives up sockets before it makes its
// executor. With --output-shapes it serves nothing: it reads LoadModels with one model from its
// standard input, a socket, runs a sample of it inside the same sandbox, and prints "ok" and the
// sizes of each output in a line ("1,40,6625"), or "failed: REASON". Returns the exit code: 0
// served to the end, 1 failed, 2 bad arguments; failures go to standard error. A process of several
// gpulets exits with 1 as soon as the device is lost.
//
// Ignores SIGINT, SIGTERM and SIGHUP: a terminal or service manager sends them to the whole process
// group, but the backend still waits for the batches in flight. A proxy ends by StopProxy, by the
// end of its channel, or by SIGKILL, which it also gets when its parent's thread ends.
[[nodiscard]] int run(std::span<const char* const> arguments, const Program& program);

}  // namespace gpulet::proxy
