#include "gpulet/batching/need.h"

#include <algorithm>

namespace gpulet::batching {

double need_of(const ModelNeed& model, const NeedRule& rule) {
  // The mean of n times the device's time, over n = 0 .. queued - 1.
  const double ahead_s = to_seconds(model.device_time) *
                         static_cast<double>(std::max<std::size_t>(model.queued, 1) - 1) / 2;
  const double estimated_s = to_seconds(model.mean_waited) + ahead_s;
  const double weighted_s = model.response
                                ? rule.queued_weight * estimated_s +
                                      (1 - rule.queued_weight) * to_seconds(*model.response)
                                : estimated_s;
  const double set_point_s = rule.set_point * to_seconds(model.objective);
  return std::max(0.0, (weighted_s - set_point_s) / set_point_s);
}

std::optional<std::size_t> neediest(std::span<const ModelNeed> models, const NeedRule& rule,
                                    std::size_t last) {
  std::optional<std::size_t> best;
  double most = 0;
  for (std::size_t step = 1; step <= models.size(); ++step) {
    const std::size_t index = (last + step) % models.size();
    if (models[index].queued == 0) continue;
    const double need = need_of(models[index], rule);
    const bool better =
        !best || need > most || (need == most && models[index].queued > models[*best].queued);
    if (!better) continue;
    best = index;
    most = need;
  }
  return best;
}

std::optional<std::size_t> next_in_turn(std::span<const ModelNeed> models, std::size_t last) {
  for (std::size_t step = 1; step <= models.size(); ++step) {
    const std::size_t index = (last + step) % models.size();
    if (models[index].queued > 0) return index;
  }
  return std::nullopt;
}

}  // namespace gpulet::batching
