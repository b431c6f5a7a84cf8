// The Open Inference Protocol over HTTP with the extensions that its users' tools need, as pure
// functions between bytes and values: which endpoint a target means, what an inference asks, how
// every answer looks. ../../../docs/protocol.md lists what is there. Pure; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/net/http/message.h"
#include "gpulet/net/kserve/infer_call.h"
#include "gpulet/net/kserve/model.h"
#include "gpulet/net/kserve/names.h"  // the names that HTTP and gRPC share: extensions, states, platform
#include "gpulet/net/kserve/settings.h"
#include "gpulet/net/kserve/shared_memory.h"

namespace gpulet::net::kserve {

enum class Endpoint : std::uint8_t {
  server_metadata,
  server_live,
  server_ready,
  model_metadata,
  model_ready,
  model_config,
  model_statistics,  // of all models where the model's name is empty
  infer,
  repository_index,
  repository_load,
  repository_unload,
  shared_memory_status,  // of all regions where the region's name is empty
  shared_memory_register,
  shared_memory_unregister,
  cuda_memory_status,  // of all regions where the region's name is empty
  cuda_memory_register,
  cuda_memory_unregister,
  log_settings,
  change_log_settings,
  trace_settings,  // of all models where the model's name is empty
  change_trace_settings,
};

struct Route {
  Endpoint endpoint{};
  std::string model;
  std::string version;  // empty: any
  std::string region;
};

// Fails with not_found (no such target) or invalid (another method is needed: `allow`, where given,
// gets those that are allowed, as "GET, POST"). Names in the target may be percent-encoded.
[[nodiscard]] Result<Route> find_route(std::string_view method, std::string_view target,
                                       std::string* allow);

// Whether there is what the route asks for: fails with not_found where the model is null, or is not
// there in that version.
[[nodiscard]] Status check_model(const Model* model, const Route& route);

// The longest body that an inference of the model can have, in any form of the protocol: so many
// rows as the model takes at once, every number at its longest in JSON, and something for the rest.
[[nodiscard]] std::size_t largest_infer_body(const Model& model);

// The longest gRPC message that an inference of so many rows of these inputs can be: raw, or every
// number at its longest in its typed field. Saturates at 1 TiB.
[[nodiscard]] std::size_t largest_infer_message(std::span<const TensorSpec> inputs,
                                                std::uint32_t rows);

// `body` as the protocol frames it: JSON, then the binary tensors. Shared memory is looked up in
// `regions`.
[[nodiscard]] Result<InferCall> read_infer(const http::Headers& headers, const Bytes& body,
                                           const Model& model, const SharedMemory& regions);
// Outputs that belong into shared memory are written there.
[[nodiscard]] http::HttpResponse write_infer(const InferCall& call, const Model& model,
                                             std::span<const serve::InferReply> replies,
                                             SharedMemory& regions);

// `version`: of this server.
[[nodiscard]] http::HttpResponse server_metadata(const std::string& version, bool shared_memory);
[[nodiscard]] http::HttpResponse model_metadata(const Model& model);
[[nodiscard]] http::HttpResponse model_config(const Model& model);
[[nodiscard]] http::HttpResponse statistics(std::span<const ModelStatistics> models);
// 200 or 400, without a body where there is nothing to say.
[[nodiscard]] http::HttpResponse ready(bool ready, const std::string& why_not);

// Whether only those that are ready are wanted: {"ready":true}. No body: all.
[[nodiscard]] Result<bool> read_repository_index(const Bytes& body);
[[nodiscard]] http::HttpResponse repository_index(std::span<const Model> models, bool only_ready);

// What a load brings along: the parameter `config` as loading() takes it, or nothing. Fails
// (invalid) where it brings files or other parameters.
[[nodiscard]] Result<std::string> read_repository_load(const Bytes& body);

[[nodiscard]] http::HttpResponse log_settings(LogLevel level);
[[nodiscard]] http::HttpResponse trace_settings(const TraceSampling& sampling);

[[nodiscard]] Result<RegionToRegister> read_register(const std::string& region, const Bytes& body);
[[nodiscard]] http::HttpResponse shared_memory_status(std::span<const RegionInfo> regions);

// {"error": ...} with the status that the protocol's clients expect of that code: not_found 404,
// unavailable, overloaded and too_late 503, timeout 504, cancelled 499, internal 500,
// unauthenticated 401, forbidden 403, limited 429, all else 400.
[[nodiscard]] http::HttpResponse error(const Status& status);
[[nodiscard]] http::HttpResponse error(unsigned status, const std::string& message);

}  // namespace gpulet::net::kserve
