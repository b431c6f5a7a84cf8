#include "serve/requests/batch_results.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "gpulet/base/text.h"

namespace gpulet::serve {

void BatchResults::note_detail(const BatchResult& result, Time now, FrontendEffects& effects) {
  const BatchInFlight* const batch = dispatch_.dispatcher().batches().find(result.id);
  if (result.detail.empty() || batch == nullptr) return;
  const std::string_view model = dispatch_.dispatcher().queues().models()[batch->model].name;
  const auto suppressed = details_.admit(model, "detail", now);
  if (!suppressed) return;
  std::string text = fmt::format("model {} could not compute a batch: {}", model,
                                 escaped(result.detail, kMostDetailBytes));
  if (*suppressed > 0)
    text += fmt::format(" ({} more failed since the last such note)", *suppressed);
  journal_.note(true, std::move(text), now, effects);
}

std::vector<ProcessLost> BatchResults::take_in(const BatchResult& message, bool leads, Time now,
                                               FrontendEffects& effects) {
  note_detail(message, now, effects);
  DispatchOutput output;
  dispatch_.dispatcher().completed(message, now, output);
  if (output.ran) {
    feedback_.ran(*output.ran, now);
    figures_.ran(*output.ran);
    if (leads && !output.failed) failures_.batch_ran(output.ran->gpulet, output.ran->model);
  }
  if (output.failed && leads) {
    const BatchFailed& failed = *output.failed;
    failures_.batch_failed(failed.gpulet, failed.model, failed.why, now, effects);
  }
  std::vector<ProcessLost> lost = std::move(output.lost);
  dispatch_.write(std::move(output), effects);
  for (const ProcessLost& one : lost) {
    figures_.lost(one);
    if (leads) failures_.process_lost(one, now, effects);
  }
  return lost;
}

}  // namespace gpulet::serve
