// The life of one gpulet at its backend.
//
//   fetching --> starting --> loading --> ready --> retiring --> gone
//      |            |            |          |
//      |            +------------+----------+--> restarting --> starting (after a back-off)
//      +------------+------------+--> failed --> gone
//
// fetching: files of its models are on their way; starting: its process is being made; loading: the
// process loads and warms the models, under a loose bound; ready: the share is in force and batches
// are taken; restarting: the process ended, the next one waits; failed: given up until the frontend
// retires it; retiring: finishes what it holds, and is ended at once where it was not ready yet.
// What has no process (fetching, restarting, failed) goes straight to gone when it is retired.
// Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "gpulet/serve/messages.h"

namespace gpulet::serve {

enum class GpuletPhase : std::uint8_t {
  fetching,
  starting,
  loading,
  ready,
  restarting,
  failed,
  retiring,
  gone,
};

[[nodiscard]] std::string_view to_string(GpuletPhase phase);
[[nodiscard]] bool is_legal_transition(GpuletPhase from, GpuletPhase to);
// In these phases a process exists or is being made, and its end will be told.
[[nodiscard]] bool has_process(GpuletPhase phase);
// What the frontend is told; a retiring gpulet takes no batches and is no longer its concern: gone.
[[nodiscard]] GpuletState reported_state(GpuletPhase phase);

}  // namespace gpulet::serve
