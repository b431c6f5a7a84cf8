#include "gpulet/node/backend_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "node/backend_core_impl.h"

namespace gpulet::node {
namespace {

// Rounding may lift a sum of cores that was scaled to the device slightly above it.
constexpr double kRounding = 1 + 1e-9;

}  // namespace

// ---- BackendCore

BackendCore::BackendCore(BackendCoreOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
BackendCore::~BackendCore() = default;
void BackendCore::on(BackendEvent event, Time now, BackendEffects& effects) {
  impl_->on(std::move(event), now, effects);
}
Time BackendCore::next_wakeup() const { return impl_->next_wakeup(); }
bool BackendCore::finished() const { return impl_->finished(); }
bool BackendCore::takes_batches(FrontendId frontend, GpuletId gpulet) const {
  return is_owner(frontend, gpulet) && impl_->phase_of(gpulet) == GpuletPhase::ready;
}
bool BackendCore::is_owner(FrontendId frontend, GpuletId gpulet) const {
  return impl_->is_owner(frontend, gpulet);
}
std::size_t BackendCore::input_bytes(const Batch& batch) const {
  return impl_->batches().input_bytes(batch);
}
MutableBytes BackendCore::rows_memory(FrontendId frontend, const Rows& rows) const {
  return impl_->batches().rows_memory(frontend, rows);
}
bool BackendCore::takes_rows(FrontendId frontend, const Rows& rows, std::size_t bytes) const {
  return impl_->batches().takes_rows(frontend, rows, bytes);
}
bool BackendCore::obeys(FrontendId frontend) const { return impl_->links().leader() == frontend; }
std::uint64_t BackendCore::commands_refused() const { return impl_->links().commands_refused(); }
std::set<std::string, std::less<>> BackendCore::files_in_use() const {
  return impl_->gpulets().files_in_use();
}
std::optional<GpuletPhase> BackendCore::phase_of(GpuletId gpulet) const {
  return impl_->phase_of(gpulet);
}

// ---- the frontends

BackendCore::Impl::Impl(BackendCoreOptions options)
    : options_(std::move(options)),
      links_(options_.welcome_timeout),
      devices_(options_),
      gpulets_(options_.devices.size()),
      files_(devices_, gpulets_, links_),
      checks_(options_, devices_, files_, gpulets_),
      processes_(options_, links_, devices_, files_, gpulets_, checks_),
      batches_(options_, links_, devices_, gpulets_, checks_, processes_) {}

void BackendCore::Impl::on(BackendEvent event, Time now, BackendEffects& effects) {
  std::visit([&](auto& one) { on_event(one, Turn{now, effects}); }, event);
  gpulets_.erase_gone();
  checks_.drop_stale();
}

Time BackendCore::Impl::next_wakeup() const {
  return std::min({drain_until_, links_.next_check(), checks_.next(), batches_.next()});
}

std::optional<GpuletPhase> BackendCore::Impl::phase_of(GpuletId id) const {
  const HostedGpulet* const gpulet = gpulets_.find(id);
  return gpulet == nullptr ? std::nullopt : std::optional(gpulet->phase());
}

void BackendCore::Impl::on_event(FrontendConnected& event, Turn turn) {
  links_.connect(event.frontend, turn.time);
  Hello hello{options_.node, devices_.offers(), {}, kProtocolLevel, links_.term()};
  for (const auto& [id, gpulet] : gpulets_.all()) {
    // The frontend retired these already.
    if (gpulet.phase() != GpuletPhase::retiring) hello.gpulets.push_back(gpulet.report());
  }
  links_.send_to(event.frontend, std::move(hello), turn);
}

void BackendCore::Impl::on_event(FrontendDisconnected& event, Turn turn) {
  const bool led = links_.leader() == event.frontend;
  links_.disconnect(event.frontend);
  batches_.disconnected(event.frontend, turn);
  if (led) files_.start_over(turn);
  if (shutting_down_ && (led || !links_.any())) retire_all(turn);
}

void BackendCore::Impl::on_event(CommandReceived& event, Turn turn) {
  if (!links_.heard(event.frontend, turn.time)) return;
  std::visit([&](auto& command) { on_command(event.frontend, command, turn); }, event.command);
}

void BackendCore::Impl::on_command(FrontendId from, Welcome& command, Turn turn) {
  if (links_.welcome(from, command, turn)) files_.start_over(turn);
}

void BackendCore::Impl::on_command(FrontendId /*from*/, Heartbeat& /*command*/, Turn /*turn*/) {}

void BackendCore::Impl::on_command(FrontendId from, TakeLeadership& command, Turn turn) {
  const auto before = links_.leader();
  if (!links_.take_leadership(from, command.term, turn)) return;
  BackendState state{command.term, {}};
  for (const auto& [id, gpulet] : gpulets_.all()) state.gpulets.push_back(gpulet.report());
  links_.send_to(from, std::move(state), turn);
  if (before == from) return;
  if (before) links_.send_to(*before, Superseded{links_.term()}, turn);
  files_.start_over(turn);
}

// ---- owners of gpulets

bool BackendCore::Impl::is_owner(FrontendId frontend, GpuletId id) const {
  const HostedGpulet* const gpulet = gpulets_.find(id);
  const bool leaders = gpulet == nullptr || gpulet->owner.empty();
  return leaders ? links_.leader() == frontend : links_.frontend_of(gpulet->owner) == frontend;
}

void BackendCore::Impl::on_command(FrontendId from, SetOwner& command, Turn turn) {
  if (!links_.admits(from, command.term, turn)) return;
  HostedGpulet* const gpulet = gpulets_.find(command.id);
  if (gpulet == nullptr || gpulet->owner == command.owner) return;
  const auto former = links_.frontend_of(std::exchange(gpulet->owner, std::move(command.owner)));
  const auto owner = links_.frontend_of(gpulet->owner);
  if (former) links_.send_to(*former, gpulet->report(), turn);
  if (owner && owner != former) links_.send_to(*owner, gpulet->report(), turn);
}

void BackendCore::Impl::on_event(TimePassed& /*event*/, Turn turn) {
  links_.excuse_silence(turn.time - next_wakeup(), turn.time);
  links_.check([this] { return devices_.heartbeat(); }, turn);
  if (turn.time >= drain_until_) retire_all(turn);
  batches_.run_ready(turn);
  processes_.check_due(turn);
}

// Ready gpulets serve on for drain_timeout, while the frontend moves their models elsewhere.
void BackendCore::Impl::on_event(ShutDown& /*event*/, Turn turn) {
  shutting_down_ = true;
  for (auto& [id, gpulet] : gpulets_.all()) {
    if (!links_.any() || gpulet.phase() != GpuletPhase::ready) processes_.retire(gpulet, turn);
  }
  const bool serves =
      std::any_of(gpulets_.all().begin(), gpulets_.all().end(),
                  [](const auto& entry) { return entry.second.phase() == GpuletPhase::ready; });
  if (!serves) return;
  drain_until_ = turn.time + options_.drain_timeout;
  links_.send_to_all(Draining{}, turn);
}

void BackendCore::Impl::retire_all(Turn turn) {
  drain_until_ = kNever;
  for (auto& [id, gpulet] : gpulets_.all()) processes_.retire(gpulet, turn);
}

// ---- controlled cores

void BackendCore::Impl::on_command(FrontendId from, SetCores& event, Turn turn) {
  if (!links_.admits(from, event.term, turn)) return;
  HostedGpulet* const gpulet = gpulets_.find(event.id);
  if (gpulet == nullptr || !gpulet->controlled()) return;
  const double most = devices_.cores(gpulet->device());
  if (!(event.cores > 0 && event.cores <= most * kRounding)) {
    report_cores_refused(
        *gpulet,
        {StatusCode::invalid,
         fmt::format("the cores of a gpulet on that device must be above 0 and at most {:f}; was "
                     "{:f}",
                     most, event.cores)},
        turn);
    return;
  }
  const double before = devices_.cores_of(*gpulet);
  gpulet->cores = std::min(event.cores, most);
  if (gpulet->phase() != GpuletPhase::ready || !gpulet->terminating.ok()) return;
  turn.effects.push_back(AdjustCores{event.id, *gpulet->cores, devices_.stretch(*gpulet, before)});
}

void BackendCore::Impl::on_event(CoresSet& event, Turn turn) {
  const HostedGpulet* const gpulet = gpulets_.find(event.gpulet);
  if (event.status.ok() || gpulet == nullptr || gpulet->phase() != GpuletPhase::ready) return;
  report_cores_refused(*gpulet, std::move(event.status), turn);
}

void BackendCore::Impl::report_cores_refused(const HostedGpulet& gpulet, Status why, Turn turn) {
  GpuletReport report = gpulet.report();
  report.status = std::move(why);
  links_.send_report(std::move(report), turn);
}

// ---- gpulets

void BackendCore::Impl::on_command(FrontendId from, GpuletRequested& event, Turn turn) {
  if (!links_.admits(from, event.create.term, turn)) return;
  if (const auto* known = gpulets_.find(event.create.id)) {  // requested twice: report its state
    links_.send_report(known->report(), turn);
    return;
  }
  auto possible = shutting_down_ ? Status(StatusCode::unavailable, "the backend is shutting down")
                                 : devices_.check(event.create);
  auto made = possible.ok() ? HostedGpulet::create(event.create, turn.time)
                            : Result<HostedGpulet>(possible);
  if (!made.ok()) {
    const bool faulty = !shutting_down_ && devices_.is_faulty(event.create.device);
    refuse(event.create, faulty ? FailureCause::device : FailureCause::unknown, made.status(),
           turn);
    return;
  }
  files_.learn(event);
  HostedGpulet& gpulet = gpulets_.add(std::move(made).value());
  links_.send_report(gpulet.report(), turn);
  if (files_.lacks_any_of(gpulet)) {
    files_.request(gpulet, turn);
  } else {
    processes_.start(gpulet, turn);
  }
}

void BackendCore::Impl::refuse(const CreateGpulet& request, FailureCause cause, const Status& why,
                               Turn turn) {
  GpuletReport report;
  report.id = request.id;
  report.device = request.device;
  report.size = request.size;
  report.instance = request.instance;
  report.state = GpuletState::failed;
  report.status = why;
  report.cause = cause;
  links_.send_report(std::move(report), turn);
}

void BackendCore::Impl::on_command(FrontendId from, AssignGpulet& event, Turn turn) {
  if (!links_.admits(from, event.term, turn)) return;
  if (auto* gpulet = gpulets_.find(event.id)) gpulet->assign(std::move(event.part));
}

void BackendCore::Impl::on_command(FrontendId from, RetireGpulet& event, Turn turn) {
  if (!links_.admits(from, event.term, turn)) return;
  if (auto* gpulet = gpulets_.find(event.id)) return processes_.retire(*gpulet, turn);
  GpuletReport report;
  report.id = event.id;
  report.state = GpuletState::gone;
  links_.send_report(std::move(report), turn);
}

// ---- model files

void BackendCore::Impl::on_event(ModelStored& event, Turn turn) {
  files_.on_stored(event);
  for (auto& [id, gpulet] : gpulets_.all()) {
    if (gpulet.phase() == GpuletPhase::fetching && !files_.lacks_any_of(gpulet))
      processes_.start(gpulet, turn);
  }
  files_.done(event.sha256, turn);
}

void BackendCore::Impl::on_event(ModelProgress& event, Turn turn) {
  files_.on_progress(event, turn);
}

void BackendCore::Impl::on_event(ModelFailed& event, Turn turn) {
  for (auto& [id, gpulet] : gpulets_.all()) {
    const auto& models = gpulet.models();
    const auto of_it = std::find_if(models.begin(), models.end(), [&](const auto& model) {
      return model.sha256 == event.sha256;
    });
    if (gpulet.phase() != GpuletPhase::fetching || of_it == models.end()) continue;
    processes_.fail(gpulet, event.status.within("model '" + of_it->name + "'"), event.cause,
                    of_it->name, turn);
  }
  files_.done(event.sha256, turn);
}

}  // namespace gpulet::node
