// What this server and the states of its models are called in the Open Inference Protocol, over
// HTTP and gRPC alike. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpulet/net/kserve/model.h"
#include "gpulet/serve/messages.h"

namespace gpulet::net::kserve {

inline constexpr const char* kServerName = "gpulet";
inline constexpr const char* kPlatform = "pytorch_libtorch";
inline constexpr const char* kBackend = "pytorch";
inline constexpr const char* kApplicationPlatform = "ensemble";  // of an application

[[nodiscard]] const char* platform_of(const Model& model);
// Empty for an application.
[[nodiscard]] const char* backend_of(const Model& model);
// Of the model's file, and of the labels of its output with that index; empty where there is none.
[[nodiscard]] std::string model_filename(const Model& model);
[[nodiscard]] std::string label_filename(const Model& model, std::size_t output);

// The names of the extensions that are there.
[[nodiscard]] std::vector<std::string> extensions(bool shared_memory);

// READY, LOADING, UNLOADING or UNAVAILABLE. A model that gave up its gpulet for want of requests is
// READY: the next request brings it back.
[[nodiscard]] std::string_view repository_state(serve::ModelState state);
// Whether the protocol calls it ready.
[[nodiscard]] bool takes_requests(serve::ModelState state);

}  // namespace gpulet::net::kserve
