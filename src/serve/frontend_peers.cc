// FrontendCore: what no backend may do, and what becomes of what it claims.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve {
namespace {

// A backend that breaks the rules again and again neither fills the log nor hides other events;
// every breach is counted.
constexpr Duration kBetweenNotes = std::chrono::seconds(1);

}  // namespace

RunIds FrontendCore::run_ids() const {
  const std::uint64_t begin = options_.run << kRunShift;
  return {GpuletId{begin + 1}, GpuletId{next_gpulet_},
          GpuletId{begin + (std::uint64_t{1} << kRunShift)}};
}

void FrontendCore::refuse_backend(BackendId backend, const PeerBreach& breach, Time now,
                                  FrontendEffects& effects) {
  const auto kind = static_cast<std::size_t>(breach.kind);
  ++violations_[kind];
  effects.emplace_back(DropBackend{backend, breach.why});
  if (fleet_.backends().contains(backend)) {
    lose_backend(backend, breach.why, now, effects);
  } else if (violation_noted_[kind] == Time() || now - violation_noted_[kind] >= kBetweenNotes) {
    violation_noted_[kind] = now;
    note(true,
         "refused a backend (" + std::string(to_string(breach.kind)) + "): " + breach.why.message(),
         now, effects);
  }
}

void FrontendCore::on_event(const BackendBroke& event, Time now, FrontendEffects& effects) {
  refuse_backend(event.backend, event.breach, now, effects);
}

void FrontendCore::heard(BackendId backend, ModelWanted message, Time now,
                         FrontendEffects& effects) {
  const FileRight right = fleet_.right_to_file(backend, message.sha256);
  if (right == FileRight::told) {
    effects.emplace_back(SendModelFile{backend, std::move(message.sha256), message.offset});
    return;
  }
  if (right == FileRight::none && knows_file(message.sha256)) {
    refuse_backend(backend,
                   {PeerViolation::foreign_model,
                    {StatusCode::invalid, "it asked for model file " + message.sha256 +
                                              ", which it was not told to serve"}},
                   now, effects);
    return;
  }
  // A gpulet of an earlier run of the frontend still lacks the file. This run has not chosen that
  // node for the model: it makes another gpulet where its plan wants one.
  std::vector<GpuletId> without;
  for (const auto& [id, gpulet] : fleet_.gpulets()) {
    const bool lacks =
        gpulet.backend == backend && !gpulet.issued && gpulet.state == GpuletState::preparing &&
        std::any_of(gpulet.models.begin(), gpulet.models.end(), [&](const auto& one) {
          return file_of_version(one.version) == message.sha256;
        });
    if (lacks) without.push_back(id);
  }
  for (const GpuletId id : without) retire_gpulet(id, effects);
  effects.emplace_back(TellBackend{backend, ModelPiece{std::move(message.sha256), 0, 0, {}}});
}

void FrontendCore::retire_unwanted(Time now, FrontendEffects& effects) {
  std::vector<GpuletId> unwanted;
  for (const auto& [id, gpulet] : fleet_.gpulets()) {
    const bool wanted = serving_.contains(id) || (rollout_ && rollout_->parts().contains(id));
    if (!wanted && !gpulet.retiring && now - gpulet.since >= options_.take_up_within)
      unwanted.push_back(id);
  }
  for (const GpuletId id : unwanted) retire_gpulet(id, effects);
}

}  // namespace gpulet::serve
