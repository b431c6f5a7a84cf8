#include "schedule/cover/filled_device.h"

#include <algorithm>
#include <optional>

namespace gpulet::schedule {
namespace {

void fill_gpulet(Draft& draft, std::uint32_t device, const FilledGpulet& filled) {
  std::optional<std::size_t> gpulet;
  for (const Portion& portion : filled.portions) {
    const double wanted = std::min(portion.rate, draft.left(portion.model));
    if (wanted <= 0) continue;
    if (!gpulet) {
      const double most = draft.most_rate_of_new(device, filled.size, portion.model);
      if (most <= 0) continue;
      gpulet = draft.add_gpulet(device, filled.size, portion.model, std::min(wanted, most));
    } else if (draft.fits(*gpulet, portion.model, wanted)) {
      draft.add(*gpulet, portion.model, wanted);
    } else if (const double most = draft.most_rate(*gpulet, portion.model); most > 0) {
      draft.add(*gpulet, portion.model, std::min(wanted, most));
    }
  }
}

// Whether the device would hold anything: an open device without a gpulet would count as used.
bool holds_anything(const Problem& problem, const Draft& draft, const FilledDevice& filled) {
  for (const FilledGpulet& gpulet : filled.gpulets) {
    for (const Portion& portion : gpulet.portions) {
      if (std::min(portion.rate, draft.left(portion.model)) > 0 &&
          draft.memory_fits_empty(portion.model, filled.device_class) &&
          problem.row(portion.model, filled.device_class, gpulet.size).most_rate > 0) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

Draft draft_of(Problem& problem, const std::vector<FilledDevice>& devices) {
  Draft draft(problem);
  for (const FilledDevice& filled : devices) {
    if (!draft.can_open(filled.device_class) || !holds_anything(problem, draft, filled)) continue;
    const std::uint32_t device = draft.open(filled.device_class);
    for (const FilledGpulet& gpulet : filled.gpulets) fill_gpulet(draft, device, gpulet);
  }
  for (std::size_t model = 0; model < problem.models().size(); ++model) {
    while (draft.left(model) > 0) {
      const std::optional<Draft::Room> room = draft.most_room(model);
      if (!room) break;
      draft.add(room->gpulet, model, std::min(room->rate, draft.left(model)));
    }
  }
  return draft;
}

}  // namespace gpulet::schedule
