// Whether a Hello can be true: of itself, and beside what the frontend knows. A Hello is taken in
// whole or not at all, so that one backend's mistakes and lies touch nobody else. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "gpulet/core/ids.h"
#include "gpulet/serve/messages.h"
#include "gpulet/serve/peer_rules.h"

namespace gpulet::serve {

// Bounds of what a Hello may hold. The codec has the same ones on the wire.
inline constexpr std::size_t kMostHelloDevices = 1024;
inline constexpr std::size_t kMostHelloGpulets = 4096;
inline constexpr std::size_t kMostHelloModels = 1024;  // of one gpulet

// The ids that one run of a frontend gives to gpulets: those in [first, next) were given out, those
// in [next, end) will be.
struct RunIds {
  GpuletId first;
  GpuletId next;
  GpuletId end;
};

// Checks, in this order: the node's name; devices (its own, each once, with sizes, memory, cores
// and names that a plan can reckon with); gpulets (each once, on a device of the Hello, with
// finite, bounded numbers, and no id that this run gave to another node or has not given out yet);
// and that no other backend is connected under the name. Returns the first breach; the message says
// which entry is wrong.
[[nodiscard]] std::optional<PeerBreach> check_hello(const Hello& hello, const Fleet& fleet,
                                                    const RunIds& ids);

}  // namespace gpulet::serve
