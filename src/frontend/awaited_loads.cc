#include "awaited_loads.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "gpulet/serve/load_outcome.h"

namespace gpulet::frontend {

void AwaitedLoads::add(const std::vector<serve::ModelInfo>& meant, Time now, OnDecided done) {
  if (loads_.size() >= kMost) {
    done({Status(StatusCode::overloaded, "the models are registered, but " + std::to_string(kMost) +
                                             " calls wait already for models to serve"),
          meant});
    return;
  }
  Load load{{}, now + kLongest, std::move(done)};
  for (const serve::ModelInfo& model : meant)
    load.models.push_back({model.name, serve::wanted_version(model)});
  loads_.push_back(std::move(load));
}

std::optional<Status> AwaitedLoads::decide(const Load& load,
                                           const std::vector<serve::ModelInfo>& now) {
  bool all_serve = true;
  for (const Wanted& wanted : load.models) {
    const auto model = std::find_if(now.begin(), now.end(), [&wanted](const serve::ModelInfo& one) {
      return one.name == wanted.name;
    });
    if (model == now.end())
      return Status(StatusCode::unavailable, "model " + wanted.name + " was unloaded meanwhile");
    const auto outcome = serve::outcome_of_load(*model, wanted.version);
    if (outcome && !outcome->serves)
      return Status(StatusCode::unavailable, "model " + wanted.name + ": " + outcome->text);
    all_serve = all_serve && outcome;
  }
  return all_serve ? std::optional(Status()) : std::nullopt;
}

void AwaitedLoads::settle(const serve::FrontendCore& core, Time now) {
  if (loads_.empty() || now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  std::vector<Load> waiting;
  for (Load& load : std::exchange(loads_, {})) {
    std::vector<std::string> names;
    for (const Wanted& wanted : load.models) names.push_back(wanted.name);
    std::vector<serve::ModelInfo> models = core.models(std::move(names));
    std::optional<Status> decided = decide(load, models);
    if (!decided && now >= load.until) {
      decided = Status(StatusCode::timeout,
                       "it is still not decided whether the models serve; the list of models says "
                       "what they wait for");
    }
    if (decided) {
      load.done({std::move(*decided), std::move(models)});
    } else {
      waiting.push_back(std::move(load));
    }
  }
  loads_.insert(loads_.begin(), std::make_move_iterator(waiting.begin()),
                std::make_move_iterator(waiting.end()));
}

void AwaitedLoads::end(const Status& why) {
  for (Load& load : std::exchange(loads_, {})) load.done({why, {}});
}

}  // namespace gpulet::frontend
