#include "serve/requests/gpulet_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace gpulet::serve {
namespace {

// A batch that is so late, and eight times its duration, has no answer. Backends end processes that
// hang much earlier.
constexpr Duration kBatchGrace = std::chrono::seconds(10);
constexpr Duration kStoodStill = std::chrono::seconds(1);

}  // namespace

void GpuletReports::take_in(BackendId backend, const GpuletReport& message, Time now,
                            FrontendEffects& effects) {
  const GpuletRecord* const known = backends_.find(message.id);
  if (known == nullptr) return;
  deployment_.set_gpulets_changed();
  lost_process_.erase(message.id);
  const GpuletRecord gpulet = *known;
  const std::string where = device_name(gpulet.device);
  backends_.report_gpulet(backend, message);

  switch (message.state) {
    case GpuletState::ready:
      ready(gpulet, message, now, effects);
      break;
    case GpuletState::preparing:
      break;
    case GpuletState::restarting:
      // The backend refuses the batches of its process one by one, so it keeps its slots.
      dispatch_.dispatcher().set_ready(message.id, false, now);
      journal_.note(true,
                    fmt::format("a proxy on {} died and is being restarted: {}", where,
                                message.status.message()),
                    now, effects);
      break;
    case GpuletState::failed:
    case GpuletState::gone:
      lose(gpulet, message, now, effects);
      break;
  }
}

void GpuletReports::ready(const GpuletRecord& gpulet, const GpuletReport& report, Time now,
                          FrontendEffects& effects) {
  dispatch_.dispatcher().set_ready(report.id, true, now);
  if (gpulet.state == GpuletState::preparing) {
    deployment_.gpulets().started_within(now - gpulet.since);
    if (gpulet.issued) deployment_.gpulets().loaded(gpulet.models, now - gpulet.since);
  }
  deployment_.gpulet_ready(report.id);
  models_.setbacks().prove(gpulet.models);
  failures_.gpulet_ready(gpulet.device, report.id);
  if (!report.status.ok())
    journal_.note(true,
                  "a gpulet on " + device_name(gpulet.device) + ": " + report.status.message(), now,
                  effects);
  if (gpulet.state == GpuletState::restarting)
    journal_.note(false, "a gpulet on " + device_name(gpulet.device) + " serves again", now,
                  effects);
}

void GpuletReports::lose(const GpuletRecord& gpulet, const GpuletReport& report, Time now,
                         FrontendEffects& effects) {
  const std::string where = device_name(gpulet.device);
  dispatch_.remove(report.id, now, effects);
  const bool in_rollout = deployment_.in_rollout(report.id);
  if (deployment_.lose(report.id)) {
    deployment_.abandon(Abandoned::gpulet_lost);
    journal_.request_urgent_plan("a gpulet on " + where + " is gone");
  }
  if (report.state != GpuletState::failed) return;
  deployment_.gpulets().retire(report.id, effects);
  journal_.note(true, "a gpulet on " + where + " failed: " + report.status.message(), now, effects);
  // The models are not at fault on a lost device, nor in a gpulet that a backend only claimed.
  if (backends_.takes_gpulets(gpulet.device) && gpulet.issued)
    failures_.gpulet_failed(gpulet, report, in_rollout, now, effects);
}

void GpuletReports::give_up_overdue(Duration late, Time now, FrontendEffects& effects) {
  for (FailureHandler::Overdue& overdue : failures_.watch(now, effects)) {
    const GpuletRecord gpulet = *backends_.find(overdue.gpulet);
    GpuletReport report;
    report.id = overdue.gpulet;
    report.state = GpuletState::failed;
    report.status = std::move(overdue.why);
    report.cause = FailureCause::hung;
    lose(gpulet, report, now, effects);
  }
  // What backends answered while this frontend stood still may not have been read yet.
  if (late > kStoodStill) return;
  std::set<GpuletId> silent = dispatch_.dispatcher().batches().silent(kBatchGrace, now);
  for (const auto& [id, since] : lost_process_) {
    if (now - since >= kBatchGrace) silent.insert(id);
  }
  for (const GpuletId id : silent) {
    lost_process_.erase(id);
    const GpuletRecord* const known = backends_.find(id);
    if (known == nullptr || known->retiring || known->state != GpuletState::ready) continue;
    const GpuletRecord gpulet = *known;
    dispatch_.remove(id, now, effects);
    deployment_.lose(id);
    deployment_.gpulets().retire(id, effects);
    failures_.gpulet_silent(gpulet, now, effects);
  }
}

void GpuletReports::retire_unclaimed(Time now, FrontendEffects& effects) {
  for (const auto& [id, gpulet] : backends_.gpulets()) {
    const bool wanted = deployment_.in_force().serving().contains(id) ||
                        deployment_.in_force().missing().contains(id) || deployment_.in_rollout(id);
    if (!wanted && now - gpulet.since >= options_.take_up_within)
      deployment_.gpulets().retire(id, effects);
  }
}

std::optional<PeerBreach> GpuletReports::on_file_request(BackendId backend,
                                                         ModelPieceRequest message,
                                                         FrontendEffects& effects) {
  const FileRight right = backends_.right_to_file(backend, message.sha256);
  if (right == FileRight::granted) {
    effects.emplace_back(SendModelFile{backend, std::move(message.sha256), message.offset});
    return std::nullopt;
  }
  if (right == FileRight::none && models_.table().knows_file(message.sha256)) {
    return PeerBreach{PeerViolation::foreign_model,
                      {StatusCode::invalid,
                       fmt::format("it requested model file {}, which it was not ordered to serve",
                                   message.sha256)}};
  }
  // A gpulet of an earlier run lacks the file. This run has not chosen the node for the model.
  for (const auto& [id, gpulet] : backends_.gpulets()) {
    const bool lacks =
        gpulet.backend == backend && !gpulet.issued && gpulet.state == GpuletState::preparing &&
        std::any_of(gpulet.models.begin(), gpulet.models.end(), [&](const auto& one) {
          return file_of_version(one.version) == message.sha256;
        });
    if (lacks) deployment_.gpulets().retire(id, effects);
  }
  effects.emplace_back(SendToBackend{backend, ModelPiece{std::move(message.sha256), 0, 0, {}}});
  return std::nullopt;
}

}  // namespace gpulet::serve
