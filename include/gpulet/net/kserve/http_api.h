// The Open Inference Protocol over HTTP with the extensions that its clients need, as pure
// functions between bytes and values (docs/protocol.md). Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/net/http/message.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/infer_call.h"

namespace gpulet::net::kserve {

// What the target of a request names.
struct Route {
  std::string model;
  std::string version;  // empty: any
  std::string region;   // of shared memory
};

// The path of a target, without its query, as segments. Names in it may be percent-encoded. Refers
// to the text of the target.
class TargetPath {
 public:
  // Empty if it is no path, is wrongly encoded, or has more segments than any pattern.
  [[nodiscard]] static std::optional<TargetPath> of(std::string_view target);

  TargetPath(TargetPath&&) = default;
  TargetPath& operator=(TargetPath&&) = default;

  // What the path names if it has this pattern, such as v2/models/{M}/versions/{V}/infer: {M} is a
  // model, {V} its version, {R} a region. Empty: it has another one.
  [[nodiscard]] std::optional<Route> match(std::string_view pattern) const;

 private:
  static constexpr std::size_t kMostSegments = 6;

  TargetPath() = default;

  std::array<std::string_view, kMostSegments> segments_;  // of the target, or of decoded_
  std::size_t count_ = 0;
  std::vector<std::string> decoded_;  // never grows beyond its capacity: segments_ refer to it
};

// Fails with not_found if the model is null or has another version than the route.
[[nodiscard]] Status check_model(const Model* model, const Route& route);

// The largest body of an inference: max_batch rows, as a pretty printer writes them with up to 8
// characters for each level, and room for the rest. At most 1 TiB.
[[nodiscard]] std::size_t largest_infer_body(const Model& model);
// What that limit follows from, for its error.
[[nodiscard]] std::string largest_infer_rows(const Model& model);

// The same for a gRPC message with `rows` rows, raw or in typed fields. At most 1 TiB.
[[nodiscard]] std::size_t largest_infer_message(std::span<const TensorSpec> inputs,
                                                std::uint32_t rows);

// Parses a body: JSON, then the binary tensors; or the images of a model whose input is an encoded
// image, if the Content-Type says so. Inputs in shared memory are read from `regions`.
[[nodiscard]] Result<InferCall> read_infer(const http::Headers& headers, const Bytes& body,
                                           const Model& model, const SharedMemory& regions);
// Writes outputs that belong to shared memory to `regions`.
[[nodiscard]] http::HttpResponse write_infer(const InferCall& call, const Model& model,
                                             std::span<const InferReply> replies,
                                             SharedMemory& regions);

// `version`: of this server.
[[nodiscard]] http::HttpResponse server_metadata(const std::string& version, bool shared_memory);
[[nodiscard]] http::HttpResponse model_metadata(const Model& model);
[[nodiscard]] http::HttpResponse model_config(const Model& model);
[[nodiscard]] http::HttpResponse statistics(std::span<const ModelStatistics> models);
// 200 or 400; the body is empty without a reason.
[[nodiscard]] http::HttpResponse ready(bool ready, const std::string& why_not);

// True for {"ready":true}: only ready models. An empty body requests all.
[[nodiscard]] Result<bool> read_repository_index(const Bytes& body);
[[nodiscard]] http::HttpResponse repository_index(std::span<const Model> models, bool only_ready);

// The parameter `config` for loading(), or empty. Fails (invalid) for files or other parameters.
[[nodiscard]] Result<std::string> read_repository_load(const Bytes& body);
// Fails (invalid) for a body that is not the JSON of an unload.
[[nodiscard]] Status read_repository_unload(const Bytes& body);

[[nodiscard]] http::HttpResponse log_settings(LogLevel level);
[[nodiscard]] http::HttpResponse trace_settings(const TraceSampling& sampling);

[[nodiscard]] Result<RegionInfo> read_register(const std::string& region, const Bytes& body);
[[nodiscard]] http::HttpResponse shared_memory_status(std::span<const RegionInfo> regions);

// {"error": ...} with the status that clients expect for the code: not_found 404; unavailable,
// overloaded and too_late 503; timeout 504; cancelled 499; internal 500; unauthenticated 401;
// forbidden 403; limited 429; all others 400.
[[nodiscard]] http::HttpResponse error(const Status& status);
[[nodiscard]] http::HttpResponse error(unsigned status, const std::string& message);

}  // namespace gpulet::net::kserve
