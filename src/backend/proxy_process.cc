#include "gpulet/backend/proxy_process.h"

#include <map>
#include <string>
#include <utility>

#include "backend/child_process.h"
#include "backend/proxy_link.h"
#include "backend/spawn.h"

namespace gpulet::backend {
namespace {

namespace asio = net::asio;

// Somebody else ends the process: for so long the owner, who is going, waits for that.
constexpr std::chrono::milliseconds kLongestEnd = std::chrono::seconds(10);

}  // namespace

// The process has ended for the owner when both are true: it was reaped, and its channel was read
// to the end.
class ProxyProcess::Impl : public ProxyLink {
 public:
  Impl(const asio::any_io_executor& executor, pid_t process, bool in_background,
       ProxyCallbacks callbacks)
      : ProxyLink(executor, std::move(callbacks)),
        child_(executor, process),
        in_background_(in_background) {}
  ~Impl() override { end_now(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] Status watch() {
    return child_.watch([this](const Status& how) { ended(how); });
  }
  [[nodiscard]] pid_t process() const { return child_.id(); }
  [[nodiscard]] const ProcessEnd& process_end() const { return child_.process_end(); }
  void stop(Duration deadline);
  void kill(Status reason);
  // The owner is going: no more callbacks, no process.
  void end_now();

 private:
  void broken(const Status& why) override { kill(why); }
  void closed(const Status& reason) override;
  void loads() override {
    if (in_background_ && !child_.ended()) raise_priority(child_.id());
  }
  [[nodiscard]] std::string name() const override { return child_.name(); }

  void ended(const Status& how);
  void tell_exit_when_over();
  void kill_late() { kill({StatusCode::timeout, name() + " did not end in time"}); }
  // Whether somebody else ends it.
  [[nodiscard]] bool is_seen_to(const ProxyCallbacks& callbacks) const {
    return was_loaded() && callbacks.end != nullptr && callbacks.end(child_.id());
  }

  ChildProcess child_;
  const bool in_background_;
  Status killed_for_;  // not ok: why
  Status ended_;       // how, once the child has
};

void ProxyProcess::Impl::ended(const Status& how) {
  const auto alive = shared_from_this();  // the callback may drop the owner
  ended_ = how;
  if (!channel_closed()) after(kGrace, [this] { close_channel(); });
  tell_exit_when_over();
}

void ProxyProcess::Impl::closed(const Status& reason) {
  if (!child_.ended()) {
    // Closed or broken (cancelled, unavailable): it is ending, and how will be known in a moment.
    const auto code = reason.code();
    if (code == StatusCode::cancelled || code == StatusCode::unavailable) {
      after(kGrace, [this] { kill_late(); });
    } else {
      kill(reason.within("channel of " + name()));
    }
  }
  tell_exit_when_over();
}

void ProxyProcess::Impl::tell_exit_when_over() {
  if (child_.ended() && channel_closed()) tell_exit(killed_for_.ok() ? ended_ : killed_for_);
}

void ProxyProcess::Impl::stop(Duration deadline) {
  send(serve::StopProxy{});
  if (!child_.ended()) after(deadline, [this] { kill_late(); });
}

void ProxyProcess::Impl::kill(Status reason) {
  if (child_.ended()) return;
  if (killed_for_.ok()) killed_for_ = std::move(reason);
  if (!is_seen_to(callbacks())) child_.kill();
}

void ProxyProcess::Impl::end_now() {
  const auto callbacks = drop();
  const bool waits = !child_.ended() && is_seen_to(callbacks);
  child_.end(waits ? kLongestEnd : std::chrono::milliseconds(0));
}

Result<std::unique_ptr<ProxyProcess>> ProxyProcess::start(const asio::any_io_executor& executor,
                                                          const ProxyOptions& options,
                                                          ProxyCallbacks callbacks) {
  auto made = ProxyLink::make_ends();
  if (!made.ok()) return made.status();
  auto& [ours, theirs] = made.value();
  auto environment = options.environment;
  environment.insert(environment_of_nobody().begin(), environment_of_nobody().end());
  const auto process = spawn({options.program,
                              {"--control-fd", "3", "--memory-fd", "4", "--files-fd", "5"},
                              std::move(environment),
                              {theirs.control.get(), theirs.memory.get(), theirs.files.get()},
                              options.in_background,
                              options.user,
                              options.confinement});
  if (!process.ok()) return process.status();
  auto impl = std::make_shared<Impl>(executor, process.value(), options.in_background,
                                     std::move(callbacks));
  auto watched = impl->watch();
  if (!watched.ok()) return watched;
  impl->connect(std::move(ours));
  return std::unique_ptr<ProxyProcess>(new ProxyProcess(std::move(impl)));
}

ProxyProcess::ProxyProcess(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProxyProcess::~ProxyProcess() { impl_->end_now(); }

pid_t ProxyProcess::pid() const { return impl_->process(); }
ProcessEnd ProxyProcess::process_end() const { return impl_->process_end(); }
void ProxyProcess::hand_over(ProxyCallbacks callbacks) { impl_->hand_over(std::move(callbacks)); }
Status ProxyProcess::load(serve::LoadModels models, const SlotOptions& slots) {
  return impl_->load(std::move(models), slots);
}
std::optional<MutableBytes> ProxyProcess::take_slot(std::size_t bytes) {
  return impl_->take_slot(bytes);
}
bool ProxyProcess::holds(const Bytes& input) const { return impl_->holds(input); }
void ProxyProcess::run(serve::RunBatch batch, Bytes input) {
  impl_->run(std::move(batch), std::move(input));
}
void ProxyProcess::stop(Duration deadline) { impl_->stop(deadline); }
void ProxyProcess::kill(Status reason) { impl_->kill(std::move(reason)); }

}  // namespace gpulet::backend
