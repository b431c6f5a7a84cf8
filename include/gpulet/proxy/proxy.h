// The process of one gpulet: takes commands from its backend, runs batches in their order, answers
// each. Or of several gpulets of one device, which share what is alike in them: each has its own
// channel and memory (a lane), and all that is said below is true of each.
//
// It starts without belonging to anybody, says ProxyIdle once all is done that needs no model, and
// becomes a gpulet's by its first command: LoadModels brings the environment of the share, the size
// of the shared memory and the models.
//
// The control channel is one end of a Unix stream socket pair and speaks frames (net/codec):
// serve::ProxyCommand in, serve::ProxyMessage out, an answer for every command but StopProxy, in
// the order of the commands. Tensors are in memory shared with the backend. Between RunBatch and
// its BatchRan the batch's two areas belong to the proxy.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "gpulet/core/status.h"
#include "gpulet/executor/executor.h"
#include "gpulet/executor/shared_device.h"

namespace gpulet::proxy {

struct ProxyOptions {
  int control_fd = -1;
  int memory_fd = -1;  // empty until LoadModels is sent, and of its final size then
  // A Unix datagram socket over which the models' files come, opened, in the order of LoadModels;
  // -1: they are found by their names.
  int files_fd = -1;
  // In place of all others: a Unix seqpacket socket over which the descriptors above come, once for
  // each gpulet (src/proxy/lanes.h).
  int lanes_fd = -1;
};

// What a proxy program is beside its channel.
struct Program {
  // What the executor's library would do at its first use, as far as it depends neither on a share
  // nor on a model. May be empty.
  std::function<void()> prepare;
  // Called once, under the environment of the share: only now may the library make its threads, or
  // look for its device.
  std::function<std::unique_ptr<executor::Executor>()> make_executor;
  // The same for a process that serves several gpulets of one device (a green one): called under
  // the environment of its first gpulet, until it has succeeded once. Empty: this program cannot.
  std::function<Result<std::unique_ptr<executor::SharedDevice>>()> make_shared_device;
};

// From `--control-fd N --memory-fd N [--files-fd N]` or `--lanes-fd N`. Fails with invalid, naming
// the argument.
[[nodiscard]] Result<ProxyOptions> parse_arguments(std::span<const char* const> arguments);

// Obeys the channel until StopProxy (what was sent before it is finished first) or until the peer
// has closed it (what is left in the queue is abandoned: nobody waits for its answer); both return
// ok. A command that cannot be read ends it with malformed, a channel that fails with unavailable.
// The executor is made, called and destroyed on the calling thread; the channel is not closed, but
// no longer readable afterwards. The process's environment is changed, once.
//
// A batch waits for the ones before it, of which an executor of some depth has several under way:
// they overlap then, but each ends, and is answered, after the one before. Counted from when it was
// read from the channel, a batch is refused with too_late once its start_within has passed; with
// invalid where its areas overlap or do not lie in the memory.
//
// The executor is called by another thread too where its depth is above 1: for RunningBatch::finish
// and, after that has failed, health.
[[nodiscard]] Status serve(const ProxyOptions& options, const Program& program);

// What both programs do: ties the process's life to its parent's, closes it to other processes of
// its user (no core file, no debugger, no /proc), gives up the network and the system calls that no
// model needs (confine/confine.h; $GPULET_SANDBOX "off": not), parses the arguments, prepares,
// serves. Where no device is named for it, it gives up sockets before it makes its executor.
// Returns the exit code: 0 served to the end, 1 failed, 2 bad arguments; failures are told on
// standard error. A process of several gpulets ends with 1 as soon as one of them has told that the
// device is lost.
//
// SIGINT, SIGTERM and SIGHUP are ignored: a terminal or a service manager sends them to the whole
// group, and the backend still wants the batches in flight to be finished. A proxy ends by
// StopProxy, a closed channel, or SIGKILL, which it also gets when its parent's thread ends.
[[nodiscard]] int run(std::span<const char* const> arguments, const Program& program);

}  // namespace gpulet::proxy
