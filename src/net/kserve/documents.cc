#include "documents.h"

#include <nlohmann/json.hpp>

#include "gpulet/net/kserve/http_api.h"

namespace gpulet::net::kserve {
namespace {

using Json = nlohmann::ordered_json;

Json metadata_of(const std::vector<TensorSpec>& tensors) {
  Json array = Json::array();
  for (const TensorSpec& spec : tensors) {
    std::vector<std::int64_t> shape{-1};
    shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
    array.push_back({{"name", spec.name}, {"datatype", to_string(spec.type)}, {"shape", shape}});
  }
  return array;
}

Json config_of(const std::vector<TensorSpec>& tensors) {
  Json array = Json::array();
  for (const TensorSpec& spec : tensors) {
    array.push_back({{"name", spec.name},
                     {"data_type", "TYPE_" + std::string(to_string(spec.type))},
                     {"dims", spec.shape}});
  }
  return array;
}

}  // namespace

http::HttpResponse document(const Json& json) {
  return http::text_response(200, "application/json",
                             json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

http::HttpResponse server_metadata(const std::string& version, bool shared_memory) {
  return document(
      {{"name", kServerName}, {"version", version}, {"extensions", extensions(shared_memory)}});
}

http::HttpResponse model_metadata(const Model& model) {
  return document({{"name", model.name},
                   {"versions", Json::array({model.version})},
                   {"platform", kPlatform},
                   {"inputs", metadata_of(model.inputs)},
                   {"outputs", metadata_of(model.outputs)}});
}

http::HttpResponse model_config(const Model& model) {
  const Json instance{{"name", model.name}, {"count", 1}, {"kind", "KIND_AUTO"}};
  return document({{"name", model.name},
                   {"platform", kPlatform},
                   {"backend", kBackend},
                   {"max_batch_size", model.max_batch},
                   {"input", config_of(model.inputs)},
                   {"output", config_of(model.outputs)},
                   {"dynamic_batching", Json::object()},
                   {"instance_group", Json::array({instance})}});
}

http::HttpResponse shared_memory_status(std::span<const RegionInfo> regions) {
  Json array = Json::array();
  for (const RegionInfo& region : regions) {
    array.push_back({{"name", region.name},
                     {"key", region.key},
                     {"offset", region.offset},
                     {"byte_size", region.bytes}});
  }
  return document(array);
}

}  // namespace gpulet::net::kserve
