// What tests hand to a Dispatcher, and how a proxy that echoes its inputs answers its batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/request.h"
#include "serve/dispatch/dispatcher.h"

namespace gpulet::serve::testing {

constexpr Time at(int ms) { return Time(std::chrono::milliseconds(ms)); }

// Of one byte: the tag's lowest.
[[nodiscard]] inline Request byte_request(std::uint64_t tag, Time arrived, Time deadline) {
  Request made;
  made.client = ClientId{1};
  made.tag = tag;
  made.deadline = deadline;
  made.trace.arrived = arrived;
  made.input = Bytes::own({static_cast<std::byte>(tag & 0xffU)});
  return made;
}

// A gpulet that takes batches of up to 4 of each model; every batch takes 10 ms.
[[nodiscard]] inline GpuletRoute even_route(std::uint64_t gpulet,
                                            const std::vector<ModelIndex>& models) {
  GpuletRoute made{GpuletId{gpulet}, BackendId{1}, std::chrono::milliseconds(1), {}};
  for (const ModelIndex index : models)
    made.slots.push_back({index, std::vector<Duration>(4, std::chrono::milliseconds(10))});
  return made;
}

[[nodiscard]] inline BatchResult echo(const Batch& batch) {
  std::vector<std::byte> bytes;
  for (const Bytes& slice : batch.inputs)
    bytes.insert(bytes.end(), slice.view().begin(), slice.view().end());
  return {batch.id, {}, Bytes::own(std::move(bytes)), {}, batch.expected_duration};
}

}  // namespace gpulet::serve::testing
