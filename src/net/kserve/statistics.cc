#include <nlohmann/json.hpp>

#include "documents.h"
#include "gpulet/net/kserve/http_api.h"

namespace gpulet::net::kserve {
namespace {

using Json = nlohmann::ordered_json;

Json duration_of(const DurationCount& duration) {
  return {{"count", duration.count}, {"ns", duration.ns}};
}

Json batches_of(const std::vector<BatchCount>& batches) {
  Json array = Json::array();
  for (const BatchCount& batch : batches) {
    array.push_back({{"batch_size", batch.batch_size},
                     {"compute_input", duration_of(batch.compute_input)},
                     {"compute_infer", duration_of(batch.compute_infer)},
                     {"compute_output", duration_of(batch.compute_output)}});
  }
  return array;
}

Json statistics_of(const ModelStatistics& model) {
  // There is no cache, but standard load tools abort where its counts are not there.
  return {{"name", model.name},
          {"version", model.version},
          {"last_inference", model.last_inference_ms},
          {"inference_count", model.inference_count},
          {"execution_count", model.execution_count},
          {"inference_stats",
           {{"success", duration_of(model.success)},
            {"fail", duration_of(model.fail)},
            {"queue", duration_of(model.queue)},
            {"compute_input", duration_of(model.compute_input)},
            {"compute_infer", duration_of(model.compute_infer)},
            {"compute_output", duration_of(model.compute_output)},
            {"cache_hit", duration_of({})},
            {"cache_miss", duration_of({})}}},
          {"response_stats", Json::object()},
          {"batch_stats", batches_of(model.batches)},
          {"memory_usage", Json::array()}};
}

}  // namespace

http::HttpResponse statistics(std::span<const ModelStatistics> models) {
  Json array = Json::array();
  for (const ModelStatistics& model : models) array.push_back(statistics_of(model));
  return document({{"model_stats", array}});
}

}  // namespace gpulet::net::kserve
