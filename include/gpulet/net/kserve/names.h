// What this server and the states of its models are called in the Open Inference Protocol, over
// HTTP and gRPC alike. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpulet/serve/messages.h"

namespace gpulet::net::kserve {

inline constexpr const char* kServerName = "gpulet";
inline constexpr const char* kPlatform = "pytorch_libtorch";
inline constexpr const char* kBackend = "pytorch";

// The names of the extensions that are there.
[[nodiscard]] std::vector<std::string> extensions(bool shared_memory);

// READY, LOADING, UNLOADING or UNAVAILABLE. A model that gave up its gpulet for want of requests is
// READY: the next request brings it back.
[[nodiscard]] std::string_view repository_state(serve::ModelState state);
// Whether the protocol calls it ready.
[[nodiscard]] bool takes_requests(serve::ModelState state);

}  // namespace gpulet::net::kserve
