#include <fmt/format.h>

#include <algorithm>

#include "research/inss_model.h"

namespace gpulet::research {

std::string cells_csv(const InssModel& inss, const Profile& profile) {
  std::string text =
      "model,batch,partition,other_model,other_batch,other_partition,fitted,measured_ms,"
      "predicted_ms\n";
  for (const auto& [name, model] : profile.models) {
    const auto fitted = inss.fitted_alone(name);
    for (const LatencySample& cell : model.latency.samples()) {
      const auto predicted_ms = inss.latency_ms(name, cell.batch, cell.share);
      if (!predicted_ms) continue;
      const bool known = std::any_of(fitted.begin(), fitted.end(), [&](const auto& one) {
        return one.batch == cell.batch && one.share == cell.share;
      });
      text += fmt::format("{},{},{},,,,{},{:.6g},{:.6g}\n", name, cell.batch, cell.share.percent,
                          known ? 1 : 0, cell.latency_ms, *predicted_ms);
    }
  }
  const auto fitted = inss.fitted_pairs();
  for (const PairSample& pair : profile.pairs) {
    const CoRunner other{pair.other_model, pair.other_batch, pair.other_share};
    const auto predicted_ms = inss.latency_ms(pair.model, pair.batch, pair.share, {&other, 1});
    if (!predicted_ms) continue;
    const bool known = std::find(fitted.begin(), fitted.end(), pair) != fitted.end();
    text += fmt::format("{},{},{},{},{},{},{},{:.6g},{:.6g}\n", pair.model, pair.batch,
                        pair.share.percent, pair.other_model, pair.other_batch,
                        pair.other_share.percent, known ? 1 : 0, pair.latency_ms, *predicted_ms);
  }
  return text;
}

}  // namespace gpulet::research
