#include "serve/requests/backend_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "gpulet/base/text.h"

namespace gpulet::serve {
namespace {

// Bounds the log entries that a misbehaving peer can cause. Every violation is counted.
constexpr Duration kBetweenNotes = std::chrono::seconds(1);
// A batch that is so late, and eight times its duration, has no answer. Backends end processes that
// hang much earlier.
constexpr Duration kBatchGrace = std::chrono::seconds(10);
constexpr Duration kStoodStill = std::chrono::seconds(1);

}  // namespace

void BackendMessageHandler::on_message(BackendMessageReceived event, Time now,
                                       FrontendEffects& effects) {
  if (const auto breach = breach_of(event.backend, event.message, core_.backends, core_.dispatcher))
    return on_violation(event.backend, *breach, now, effects);
  core_.backends.on_message(event.backend, now);
  std::visit([&](auto& message) { on(event.backend, std::move(message), now, effects); },
             event.message);
}

void BackendMessageHandler::on_violation(BackendId backend, const PeerBreach& breach, Time now,
                                         FrontendEffects& effects) {
  const auto kind = static_cast<std::size_t>(breach.kind);
  ++violations_[kind];
  effects.emplace_back(DisconnectBackend{backend, breach.why});
  if (core_.backends.backends().contains(backend)) {
    on_disconnected(backend, breach.why, now, effects);
  } else if (violation_noted_[kind] == Time() || now - violation_noted_[kind] >= kBetweenNotes) {
    violation_noted_[kind] = now;
    core_.log.note(
        true,
        fmt::format("refused a backend ({}): {}", to_string(breach.kind), breach.why.message()),
        now, effects);
  }
}

void BackendMessageHandler::update_absence() {
  std::string why = core_.backends.why_nothing_serves();
  core_.dispatcher.set_absence(why.empty() ? Status()
                                           : Status(StatusCode::unavailable, std::move(why)));
}

// ---- connections

void BackendMessageHandler::on(BackendId backend, const Hello& message, Time now,
                               FrontendEffects& effects) {
  if (const auto breach = check_hello(message, core_.backends, core_.deployment.run_ids()))
    return on_violation(backend, *breach, now, effects);
  if (options_.clustered && message.level == 0) {
    const Status why(StatusCode::unavailable,
                     "this frontend is one of several, and the backend obeys one only: upgrade "
                     "gpulet-backend on node " +
                         message.node);
    effects.emplace_back(DisconnectBackend{backend, why});
    core_.log.note(true, "refused a backend: " + why.message(), now, effects);
    return;
  }
  core_.backends.join(backend, message, now);
  update_absence();
  effects.emplace_back(
      SendToBackend{backend, Welcome{options_.heartbeat, kProtocolLevel, options_.member}});
  core_.log.note(false,
                 fmt::format("node {} joined with {} and {}", message.node,
                             counted(message.devices.size(), "device"),
                             counted(message.gpulets.size(), "gpulet")),
                 now, effects);
  adopt_estimates(backend, message.gpulets);
  for (const DeviceOffer& offer : message.devices) {
    if (options_.estimates || core_.profiles.profiles->contains(offer.device.type)) continue;
    core_.log.note(true,
                   fmt::format("device {} is left out: no profile named {}; measure one with "
                               "gpulet profile run",
                               device_name(offer.device.key), offer.device.type),
                   now, effects);
  }
  core_.exclusions.joined(message.node, message.gpulets.empty(), now);
  core_.owned.on_joined(backend, message.gpulets, now);
  if (message.level > 0) return core_.leadership.on_joined(backend, message.term, effects);
  core_.leadership.take_over(backend, message.gpulets, now, effects);
}

void BackendMessageHandler::on(BackendId backend, const BackendState& message, Time now,
                               FrontendEffects& effects) {
  if (const auto breach = check_state(backend, message, core_.backends, core_.deployment.run_ids()))
    return on_violation(backend, *breach, now, effects);
  adopt_estimates(backend, message.gpulets);
  core_.leadership.on_state(backend, message, now, effects);
}

void BackendMessageHandler::adopt_estimates(BackendId backend,
                                            const std::vector<GpuletReport>& gpulets) {
  core_.probes.forget(backend);
  const std::vector<DeviceOffer>& offers = core_.backends.backends().at(backend).devices;
  for (const GpuletReport& gpulet : gpulets) {
    if (gpulet.device < offers.size())
      core_.estimates.adopt(offers[gpulet.device].device.key, gpulet);
  }
  core_.estimates.refresh();
}

void BackendMessageHandler::on(BackendId backend, const Superseded& message, Time now,
                               FrontendEffects& effects) {
  core_.leadership.on_superseded(backend, message.term, now, effects);
}

void BackendMessageHandler::on(BackendId backend, const Heartbeat& message, Time /*now*/,
                               FrontendEffects& /*effects*/) {
  core_.backends.report_power(backend, message.power);
}

void BackendMessageHandler::on(BackendId backend, Draining /*message*/, Time now,
                               FrontendEffects& effects) {
  const auto found = core_.backends.backends().find(backend);
  if (found == core_.backends.backends().end()) return;
  core_.backends.start_draining(backend);
  core_.log.note(false, "node " + found->second.node + " is stopping: its models move", now,
                 effects);
  core_.plan_requests.add_urgent("node " + found->second.node + " is stopping");
}

void BackendMessageHandler::on_disconnected(BackendId backend, const Status& reason, Time now,
                                            FrontendEffects& effects) {
  const auto found = core_.backends.backends().find(backend);
  if (found == core_.backends.backends().end()) return;
  const std::string node = found->second.node;
  core_.probes.forget(backend);
  core_.deployment.set_gpulets_changed();
  core_.deployment.stages().clear();
  DispatchOutput output;
  bool served = false;
  for (const GpuletId id : core_.backends.remove(backend)) {
    core_.dispatcher.remove(id, now, output);
    served |= core_.deployment.lose(id);
  }
  core_.owned.on_disconnected(backend, now, output);
  update_absence();
  core_.responses.write(std::move(output), effects);
  core_.exclusions.left(node, reason, now);
  core_.log.note(true, "lost node " + node + ": " + reason.message(), now, effects);
  // Its gpulets are replaced even where other plans must wait.
  if (served) {
    core_.plan_requests.add_urgent("node " + node + " is lost");
  } else {
    core_.plan_requests.add("node " + node + " is lost");
  }
}

void BackendMessageHandler::tick(Time now, Duration late, FrontendEffects& effects) {
  core_.backends.excuse_silence(late, now);
  for (const BackendId silent : core_.backends.silent_since(now - 4 * options_.heartbeat)) {
    const Status reason(StatusCode::timeout, "nothing was heard from it for four heartbeats");
    effects.emplace_back(DisconnectBackend{silent, reason});
    on_disconnected(silent, reason, now, effects);
  }
  for (const auto& [id, backend] : core_.backends.backends())
    effects.emplace_back(SendToBackend{id, Heartbeat{}});
}

// ---- devices and gpulets

// Gpulets on a lost device restart when it is back, unless a plan without it is made before.
void BackendMessageHandler::on(BackendId backend, const DeviceReport& message, Time now,
                               FrontendEffects& effects) {
  const auto device = core_.backends.report_device(backend, message);
  if (!device) return;
  update_absence();
  const bool back = message.fault.ok();
  const std::string name = "device " + device_name(*device);
  core_.log.note(!back, name + (back ? " is back" : " is lost: " + message.fault.message()), now,
                 effects);
  core_.plan_requests.add_urgent(name + (back ? " is back" : " is lost"));
  if (back) return;
  core_.deployment.stages().clear();
  std::optional<Rollout>& rollout = core_.deployment.rollout();
  if (!rollout) return;
  core_.deployment.set_gpulets_changed();
  for (const auto& [id, gpulet] : core_.backends.gpulets()) {
    if (gpulet.device == *device) rollout->lost(id);
  }
}

void BackendMessageHandler::on(BackendId backend, GpuletReport message, Time now,
                               FrontendEffects& effects) {
  core_.owned.on_report(backend, message, now);
  const GpuletRecord* known = core_.backends.find(message.id);
  if (known == nullptr || known->backend != backend) {
    core_.backends.report_gpulet(backend, message);  // the end of a disowned one
    return;
  }
  if (!core_.probes.hold(message, now, effects)) take_in(backend, message, now, effects);
}

void BackendMessageHandler::take_in(BackendId backend, const GpuletReport& message, Time now,
                                    FrontendEffects& effects) {
  const GpuletRecord* const known = core_.backends.find(message.id);
  if (known == nullptr) return;
  core_.deployment.set_gpulets_changed();
  lost_process_.erase(message.id);
  const GpuletRecord gpulet = *known;
  const std::string where = device_name(gpulet.device);
  core_.backends.report_gpulet(backend, message);

  switch (message.state) {
    case GpuletState::ready:
      core_.dispatcher.set_ready(message.id, true, now);
      if (gpulet.state == GpuletState::preparing) {
        core_.deployment.started_within(now - gpulet.since);
        if (gpulet.issued) core_.deployment.loaded(gpulet.models, now - gpulet.since);
      }
      if (core_.deployment.rollout()) core_.deployment.rollout()->ready(message.id);
      core_.models.prove(gpulet.models);
      core_.exclusions.ready(gpulet.device, message.id);
      if (!message.status.ok())
        core_.log.note(true, "a gpulet on " + where + ": " + message.status.message(), now,
                       effects);
      if (gpulet.state == GpuletState::restarting)
        core_.log.note(false, "a gpulet on " + where + " serves again", now, effects);
      break;
    case GpuletState::preparing:
      break;
    case GpuletState::restarting:
      // The backend refuses the batches of its process one by one, so it keeps its slots.
      core_.dispatcher.set_ready(message.id, false, now);
      core_.log.note(true,
                     fmt::format("a proxy on {} died and is being restarted: {}", where,
                                 message.status.message()),
                     now, effects);
      break;
    case GpuletState::failed:
    case GpuletState::gone:
      lose_gpulet(gpulet, message, now, effects);
      break;
  }
}

void BackendMessageHandler::lose_gpulet(const GpuletRecord& gpulet, const GpuletReport& report,
                                        Time now, FrontendEffects& effects) {
  const std::string where = device_name(gpulet.device);
  DispatchOutput output;
  core_.dispatcher.remove(report.id, now, output);
  core_.responses.write(std::move(output), effects);
  const bool in_rollout = core_.deployment.in_rollout(report.id);
  if (core_.deployment.lose(report.id)) {
    core_.deployment.stages().clear();  // the gpulets that they retire may be needed now
    core_.plan_requests.add_urgent("a gpulet on " + where + " is gone");
  }
  if (report.state != GpuletState::failed) return;
  core_.deployment.retire(report.id, effects);
  core_.log.note(true, "a gpulet on " + where + " failed: " + report.status.message(), now,
                 effects);
  // The models are not at fault on a lost device, nor in a gpulet that a backend only claimed.
  if (core_.backends.takes_gpulets(gpulet.device) && gpulet.issued)
    core_.failures.gpulet_failed(gpulet, report, in_rollout, now, effects);
}

void BackendMessageHandler::give_up_overdue(Duration late, Time now, FrontendEffects& effects) {
  if (!core_.leadership.leads()) return;
  for (FailureHandler::Overdue& overdue : core_.failures.watch(now, effects)) {
    const GpuletRecord gpulet = *core_.backends.find(overdue.gpulet);
    GpuletReport report;
    report.id = overdue.gpulet;
    report.state = GpuletState::failed;
    report.status = std::move(overdue.why);
    report.cause = FailureCause::hung;
    lose_gpulet(gpulet, report, now, effects);
  }
  // What backends answered while this frontend stood still may not have been read yet.
  if (late > kStoodStill) return;
  std::set<GpuletId> silent = core_.dispatcher.silent(kBatchGrace, now);
  for (const auto& [id, since] : lost_process_) {
    if (now - since >= kBatchGrace) silent.insert(id);
  }
  for (const GpuletId id : silent) {
    lost_process_.erase(id);
    const GpuletRecord* const known = core_.backends.find(id);
    if (known == nullptr || known->retiring || known->state != GpuletState::ready) continue;
    const GpuletRecord gpulet = *known;
    DispatchOutput output;
    core_.dispatcher.remove(id, now, output);
    core_.responses.write(std::move(output), effects);
    core_.deployment.lose(id);
    core_.deployment.retire(id, effects);
    core_.failures.gpulet_silent(gpulet, now, effects);
  }
}

void BackendMessageHandler::retire_unclaimed(Time now, FrontendEffects& effects) {
  if (!core_.leadership.leads()) return;
  for (const auto& [id, gpulet] : core_.backends.gpulets()) {
    const bool wanted = core_.deployment.serving().contains(id) ||
                        core_.deployment.missing().contains(id) || core_.deployment.in_rollout(id);
    if (!wanted && now - gpulet.since >= options_.take_up_within)
      core_.deployment.retire(id, effects);
  }
}

// ---- batches and files

void BackendMessageHandler::note_detail(const BatchResult& result, Time now,
                                        FrontendEffects& effects) {
  const std::string_view model = core_.dispatcher.model_of(result.id);
  if (result.detail.empty() || model.empty()) return;
  const auto suppressed = details_.admit(model, "detail", now);
  if (!suppressed) return;
  std::string text = fmt::format("model {} could not compute a batch: {}", model,
                                 escaped(result.detail, kMostDetailBytes));
  if (*suppressed > 0)
    text += fmt::format(" ({} more failed since the last such note)", *suppressed);
  core_.log.note(true, std::move(text), now, effects);
}

void BackendMessageHandler::on(BackendId backend, const BatchResult& message, Time now,
                               FrontendEffects& effects) {
  if (core_.probes.sent(message.id)) {
    if (const auto report = core_.probes.end(backend, message, now, effects))
      take_in(backend, *report, now, effects);
    return;
  }
  note_detail(message, now, effects);
  DispatchOutput output;
  core_.dispatcher.completed(message, now, output);
  const bool leads = core_.leadership.leads();
  if (output.ran) {
    core_.feedback.ran(*output.ran, now);
    core_.figures.ran(*output.ran);
    if (leads && !output.failed) core_.failures.batch_ran(output.ran->gpulet, output.ran->model);
  }
  if (output.failed && leads) {
    const BatchFailed& failed = *output.failed;
    core_.failures.batch_failed(failed.gpulet, failed.model, failed.why, now, effects);
  }
  const std::vector<ProcessLost> lost = std::move(output.lost);
  core_.responses.write(std::move(output), effects);
  for (const ProcessLost& one : lost) {
    core_.figures.lost(one);
    if (!leads) continue;
    lost_process_.emplace(one.gpulet, now);
    core_.failures.process_lost(one, now, effects);
  }
}

void BackendMessageHandler::on(BackendId backend, ModelPieceRequest message, Time now,
                               FrontendEffects& effects) {
  const FileRight right = core_.backends.right_to_file(backend, message.sha256);
  if (right == FileRight::granted) {
    effects.emplace_back(SendModelFile{backend, std::move(message.sha256), message.offset});
    return;
  }
  if (right == FileRight::none && core_.models.knows_file(message.sha256)) {
    on_violation(backend,
                 {PeerViolation::foreign_model,
                  {StatusCode::invalid,
                   fmt::format("it requested model file {}, which it was not ordered to serve",
                               message.sha256)}},
                 now, effects);
    return;
  }
  // A gpulet of an earlier run lacks the file. This run has not chosen the node for the model.
  for (const auto& [id, gpulet] : core_.backends.gpulets()) {
    const bool lacks =
        gpulet.backend == backend && !gpulet.issued && gpulet.state == GpuletState::preparing &&
        std::any_of(gpulet.models.begin(), gpulet.models.end(), [&](const auto& one) {
          return file_of_version(one.version) == message.sha256;
        });
    if (lacks) core_.deployment.retire(id, effects);
  }
  effects.emplace_back(SendToBackend{backend, ModelPiece{std::move(message.sha256), 0, 0, {}}});
}

}  // namespace gpulet::serve
