#include "gpulet/load/workload.h"

#include <algorithm>
#include <utility>

namespace gpulet::load {
namespace {

std::string names_of(const std::vector<serve::ModelInfo>& served) {
  if (served.empty()) return "no models";
  std::string names;
  for (const serve::ModelInfo& model : served) {
    if (!names.empty()) names += ", ";
    names += model.name;
  }
  return names;
}

Result<InputPool> inputs_of(const config::WorkloadModel& model, const serve::ModelInfo& info,
                            std::uint64_t seed) {
  if (!model.input) {
    // Another stream than the arrivals': neither may follow from the other.
    return random_inputs(info.inputs, stream_seed(seed, info.name + "/inputs"));
  }
  if (model.input->labels &&
      (info.outputs.empty() || info.outputs.front().type == DataType::boolean)) {
    return Status(
        StatusCode::invalid,
        "labels are compared with the arg max of the first output, which must hold numbers; the "
        "model has " +
            (info.outputs.empty() ? std::string("no output") : to_string(info.outputs.front())));
  }
  return read_inputs(*model.input, info.inputs);
}

}  // namespace

Result<std::vector<PreparedModel>> prepare(const std::vector<config::WorkloadModel>& workload,
                                           const std::vector<serve::ModelInfo>& served,
                                           const Scale& scale, std::uint64_t seed) {
  std::vector<PreparedModel> prepared;
  for (std::size_t i = 0; i < workload.size(); ++i) {
    const config::WorkloadModel& model = workload[i];
    const std::string pointer = "/models/" + std::to_string(i);
    const auto info =
        std::find_if(served.begin(), served.end(),
                     [&model](const serve::ModelInfo& one) { return one.name == model.name; });
    if (info == served.end()) {
      return Status(StatusCode::not_found, pointer + "/name: the target does not serve \"" +
                                               model.name + "\"; it serves " + names_of(served));
    }
    Result<InputPool> pool = inputs_of(model, *info, seed);
    if (!pool.ok()) return pool.status().within(pointer + "/input");
    PreparedModel ready;
    ready.load = {.name = model.name,
                  .arrivals = model.arrivals,
                  .rate = model.rate * scale.rate,
                  .concurrency = model.concurrency,
                  .slo = from_ms(model.slo_ms > 0 ? model.slo_ms * scale.slo : info->slo_ms),
                  .inputs = pool.value().requests.size(),
                  .labelled = !pool.value().labels.empty()};
    ready.timeout = from_ms(model.slo_ms * scale.slo);
    ready.inputs = info->inputs;
    ready.pool = std::move(pool).value();
    prepared.push_back(std::move(ready));
  }
  return prepared;
}

}  // namespace gpulet::load
