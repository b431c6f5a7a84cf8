// The process of one gpulet: takes commands from its backend, runs batches one after another,
// answers each.
//
// The control channel is one end of a Unix stream socket pair and speaks frames (net/codec):
// serve::ProxyCommand in, serve::ProxyMessage out, an answer for every command but StopProxy, in
// the order of the commands. Tensors are in memory shared with the backend. Between RunBatch and
// its BatchRan the batch's two areas belong to the proxy.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "gpulet/core/status.h"
#include "gpulet/executor/executor.h"

namespace gpulet::proxy {

struct ProxyOptions {
  int control_fd = -1;
  int memory_fd = -1;
  std::size_t memory_bytes = 0;
};

// From `--control-fd N --memory-fd N --memory-bytes N`, all required. Fails with invalid, naming
// the argument.
[[nodiscard]] Result<ProxyOptions> parse_arguments(std::span<const char* const> arguments);

// Obeys the channel until StopProxy (what was sent before it is finished first) or until the peer
// has closed it (what is left in the queue is abandoned: nobody waits for its answer); both return
// ok. A command that cannot be read ends it with malformed, a channel that fails with unavailable.
// The executor is called from the calling thread only; the channel is not closed, but no longer
// readable afterwards.
//
// A batch waits for the ones before it. Counted from when it was read from the channel, it is
// refused with too_late once its start_within has passed; with invalid where its areas overlap or
// do not lie in the memory.
[[nodiscard]] Status serve(int control_fd, std::span<std::byte> memory,
                           executor::Executor& executor);

// What both programs do: parses the arguments, maps the memory, ties the process's life to its
// parent's, serves. Returns the exit code: 0 served to the end, 1 failed, 2 bad arguments; failures
// are told on standard error.
//
// SIGINT, SIGTERM and SIGHUP are ignored: a terminal or a service manager sends them to the whole
// group, and the backend still wants the batches in flight to be finished. A proxy ends by
// StopProxy, a closed channel, or SIGKILL, which it also gets when its parent's thread ends.
[[nodiscard]] int run(std::span<const char* const> arguments,
                      const std::function<std::unique_ptr<executor::Executor>()>& make_executor);

}  // namespace gpulet::proxy
