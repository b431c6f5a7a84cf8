#include "backend/daemon.h"

#include <spdlog/spdlog.h>

#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "backend/frontend_link.h"
#include "backend/gpulet_processes.h"
#include "backend/model_receiver.h"
#include "gpulet/base/alive.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::backend {
namespace {

namespace asio = net::asio;

void log_report(const GpuletReport& report) {
  const auto name = to_string(report.state);
  if (report.status.ok()) {
    spdlog::info("gpulet {}: {}", report.id.value, name);
  } else {
    spdlog::warn("gpulet {}: {}: {}", report.id.value, name, report.status.to_string());
  }
}

void log_report(const DeviceReport& report) {
  if (report.fault.ok()) {
    spdlog::info("device {}: available again", report.device);
  } else {
    spdlog::error("device {}: lost: {}", report.device, report.fault.message());
  }
}

// The UUIDs of the devices that are GPUs, by device number.
std::map<std::uint32_t, std::string> gpus_of(const std::vector<HostedDevice>& devices) {
  std::map<std::uint32_t, std::string> gpus;
  for (const auto& device : devices) {
    if (!device.gpu.empty()) gpus.emplace(device.offer.device.key.device, device.gpu);
  }
  return gpus;
}

node::BackendCoreOptions core_options(const Setup& setup) {
  node::BackendCoreOptions options;
  options.node = setup.config.node;
  for (const auto& device : setup.devices) options.devices.push_back(device.offer);
  options.profiles = setup.profiles;
  options.hang_timeout = setup.config.hang_timeout;
  options.hang_factor = setup.config.hang_factor;
  options.load_timeout = setup.config.load_timeout;
  return options;
}

}  // namespace

class BackendDaemon::Impl : private FrontendLink::Host {
 public:
  Impl(asio::io_context& io, Setup setup, std::map<std::uint32_t, std::string> gpus,
       CoreObserver observer)
      : io_(io),
        config_(setup.config),
        core_(core_options(setup)),
        observer_(std::move(observer)),
        models_(io.get_executor(), std::move(setup.store),
                [this](node::BackendEvent event) { dispatch(std::move(event)); }),
        timer_(io),
        processes_(io.get_executor(), std::move(setup.devices), setup.config.warm_proxies,
                   {.memory_mb = static_cast<double>(setup.config.parking.memory_mb),
                    .load_ahead = setup.config.parking.load_ahead,
                    .quiet = setup.quiet_before_loading_ahead},
                   std::move(setup.proxy_user),
                   {setup.config.proxy_sandbox, setup.config.proxy_environment,
                    setup.config.native_models, setup.config.onnxruntime},
                   [this](node::BackendEvent event) { dispatch(std::move(event)); }),
        monitor_(
            io.get_executor(), std::move(gpus), std::move(setup.gpu_monitor),
            [this](std::uint32_t device, const GpuMonitor::Sample& sample) {
              const gpu::GpuPower& power = sample.power;
              dispatch(node::DeviceHealthReported{
                  device, sample.fault, {device, power.usage_w, power.limit_w, power.energy_j}});
            }) {
    FrontendLink::Host& host = *this;
    for (const config::Endpoint& frontend : setup.config.frontends) {
      FrontendLink::Options options{setup.tls, setup.config.node, setup.config.local_socket};
      links_.push_back(
          std::make_unique<FrontendLink>(io.get_executor(), frontend, std::move(options), host));
    }
  }

  void connect() {
    for (const auto& link : links_) link->start();
  }
  void stop(std::function<void()> done);
  void reload();
  [[nodiscard]] std::vector<pid_t> proxies() const { return processes_.processes(); }
  [[nodiscard]] std::vector<pid_t> warm_proxies() const { return processes_.warm_processes(); }
  [[nodiscard]] std::vector<pid_t> parked_proxies() const { return processes_.parked_processes(); }

 private:
  // The frontends
  FrontendId next_frontend() override { return {++frontends_}; }
  void on_connected(FrontendId frontend) override { dispatch(node::FrontendConnected{frontend}); }
  void on_disconnected(FrontendId frontend) override {
    announced_.erase(frontend);
    dispatch(node::FrontendDisconnected{frontend});
  }
  void on_command(FrontendId frontend, BackendCommand&& command, Time began) override;
  std::optional<MutableBytes> batch_memory(FrontendId frontend, const Batch& batch,
                                           std::size_t bytes) override;
  void place_synthetic(FrontendId from, Batch& batch);
  std::optional<MutableBytes> rows_memory(FrontendId frontend, const Rows& rows,
                                          std::size_t bytes) override;
  // Memory for all inputs of a batch with entries; empty: there is none.
  [[nodiscard]] MutableBytes memory_for_all(FrontendId frontend, const Batch& batch);
  // Null: the connection is gone.
  [[nodiscard]] FrontendLink* link_to(FrontendId frontend) const;

  // Their messages
  template <typename Command>
  void receive(FrontendId from, Command& command, Time /*began*/) {
    dispatch(node::CommandReceived{from, std::move(command)});
  }
  void receive(FrontendId from, CreateGpulet& command, Time began);
  void receive(FrontendId from, Batch& command, Time began);
  void receive(FrontendId from, ModelPiece& command, Time began);
  void receive(FrontendId /*from*/, Refused& /*command*/, Time /*began*/) {}  // the link's

  // Passes an event to the core and carries out its effects before the next event.
  void dispatch(node::BackendEvent event);
  void dispatch_one(node::BackendEvent event);
  void set_timer();
  void finish_if_stopped();

  void carry_out(node::SendToFrontend& effect);
  void carry_out(node::DisconnectFrontend& effect);
  void carry_out(node::DropUnfinishedFiles& /*effect*/) { models_.forget_unfinished(); }
  void carry_out(node::StartGpulet& effect) { processes_.start(std::move(effect)); }
  void carry_out(node::ActivateShare& effect) { processes_.activate(effect.gpulet); }
  void carry_out(node::AdjustCores& effect) { processes_.adjust(effect.gpulet, effect.cores); }
  void carry_out(node::RunOnProxy& effect) { processes_.run(std::move(effect)); }
  void carry_out(node::FinishProxy& effect) { processes_.finish(effect.gpulet); }
  void carry_out(node::KillProxy& effect) { processes_.kill(effect.gpulet, effect.reason); }

  void use_tls(Result<net::TlsContextPointer> read);

  asio::io_context& io_;
  const config::BackendConfig config_;
  node::BackendCore core_;
  const CoreObserver observer_;
  ModelReceiver models_;
  std::vector<std::unique_ptr<FrontendLink>> links_;
  std::uint64_t frontends_ = 0;  // connections so far
  // Memory for all inputs of a batch with entries whose own inputs are arriving.
  std::map<FrontendId, MutableBytes> announced_;
  std::deque<node::BackendEvent> events_;
  bool dispatching_ = false;
  bool gpulet_ended_ = false;  // files that only it used are no longer in use
  net::Alarm timer_;
  Time timer_set_for_ = kNever;
  bool stopping_ = false;
  std::function<void()> on_stopped_;  // empty once called
  GpuletProcesses processes_;
  GpuMonitor monitor_;
  AliveToken alive_;
  std::unique_ptr<asio::thread_pool> reader_;  // last: joined first. Null: nothing was read again
};

// ---- the frontends

FrontendLink* BackendDaemon::Impl::link_to(FrontendId frontend) const {
  for (const auto& link : links_) {
    if (link->connected() == frontend) return link.get();
  }
  return nullptr;
}

std::optional<MutableBytes> BackendDaemon::Impl::batch_memory(FrontendId frontend,
                                                              const Batch& batch,
                                                              std::size_t bytes) {
  if (!core_.is_owner(frontend, batch.gpulet)) return MutableBytes();
  if (!core_.takes_batches(frontend, batch.gpulet)) return std::nullopt;
  if (batch.entries.empty()) return processes_.take_slot(batch.gpulet, bytes);
  const MutableBytes memory = memory_for_all(frontend, batch);
  if (bytes > memory.size()) return std::nullopt;
  announced_.insert_or_assign(frontend, memory);
  return memory.slice(0, bytes);
}

MutableBytes BackendDaemon::Impl::memory_for_all(FrontendId frontend, const Batch& batch) {
  const std::size_t bytes = core_.input_bytes(batch);
  if (bytes == 0 || !core_.takes_batches(frontend, batch.gpulet)) return {};
  return processes_.take_slot(batch.gpulet, bytes).value_or(MutableBytes());
}

std::optional<MutableBytes> BackendDaemon::Impl::rows_memory(FrontendId frontend, const Rows& rows,
                                                             std::size_t bytes) {
  if (!core_.takes_rows(frontend, rows, bytes)) return MutableBytes();
  MutableBytes place = core_.rows_memory(frontend, rows);
  return place.size() == bytes ? std::optional(std::move(place)) : std::nullopt;
}

void BackendDaemon::Impl::on_command(FrontendId frontend, BackendCommand&& command, Time began) {
  std::visit([&](auto& kind) { receive(frontend, kind, began); }, command);
}

void BackendDaemon::Impl::receive(FrontendId from, CreateGpulet& command, Time /*began*/) {
  node::GpuletRequested request{std::move(command), {}, {}};
  for (const auto& model : request.create.models) {
    const auto file = models_.use(model.sha256);
    if (!file) continue;
    request.stored.emplace(model.sha256, file->string());
    std::error_code error;
    const auto bytes = std::filesystem::file_size(*file, error);
    if (!error) request.file_bytes.emplace(model.sha256, bytes);
  }
  dispatch(node::CommandReceived{from, std::move(request)});
}

// Takes the slot in which the gpulet's process makes the inputs, of which none came.
void BackendDaemon::Impl::place_synthetic(FrontendId from, Batch& batch) {
  batch.inputs.assign(1, Bytes());
  if (!core_.takes_batches(from, batch.gpulet)) return;
  if (auto memory = processes_.take_zeros(batch.gpulet, core_.input_bytes(batch)))
    batch.inputs.front() = std::move(*memory).freeze();
}

void BackendDaemon::Impl::receive(FrontendId from, Batch& command, Time began) {
  if (command.synthetic && command.entries.empty()) place_synthetic(from, command);
  node::BatchArrived arrived;
  arrived.arrived = began;
  arrived.placed =
      !command.inputs.empty() && processes_.holds(command.gpulet, command.inputs.front());
  if (!command.entries.empty()) {
    const bool has_own = !command.inputs.empty() && !command.inputs.front().empty();
    const auto announced = announced_.extract(from);
    if (!has_own) {
      arrived.memory = memory_for_all(from, command);
    } else if (!announced.empty()) {
      arrived.memory = announced.mapped();
    }
  }
  arrived.batch = std::move(command);
  dispatch(node::CommandReceived{from, std::move(arrived)});
}

void BackendDaemon::Impl::receive(FrontendId from, ModelPiece& command, Time /*began*/) {
  // A piece of a file also shows that the frontend is alive.
  dispatch(node::CommandReceived{from, Heartbeat{}});
  if (!core_.obeys(from)) return;
  if (command.offset == 0)
    models_.keep_only(core_.files_in_use());  // the new file may need their space
  const auto added = models_.add(std::move(command));
  if (added.ok()) return;
  if (FrontendLink* const link = link_to(from)) link->close(added);
}

// ---- the core

// Effects may cause events; these wait until the other effects are carried out.
void BackendDaemon::Impl::dispatch(node::BackendEvent event) {
  events_.push_back(std::move(event));
  if (dispatching_) return;
  dispatching_ = true;
  while (!events_.empty()) {
    auto next = std::move(events_.front());
    events_.pop_front();
    dispatch_one(std::move(next));
  }
  dispatching_ = false;
  if (std::exchange(gpulet_ended_, false)) models_.keep_only(core_.files_in_use());
  set_timer();
  finish_if_stopped();
}

void BackendDaemon::Impl::dispatch_one(node::BackendEvent event) {
  node::BackendEffects effects;
  const auto time = net::now();
  if (observer_ == nullptr) {
    core_.on(std::move(event), time, effects);
  } else {
    core_.on(event, time, effects);
    observer_(event, time, effects);
  }
  for (auto& effect : effects) {
    std::visit([this](auto& kind) { carry_out(kind); }, effect);
  }
}

void BackendDaemon::Impl::carry_out(node::SendToFrontend& effect) {
  if (const auto* report = std::get_if<DeviceReport>(&effect.message)) log_report(*report);
  if (const auto* report = std::get_if<GpuletReport>(&effect.message)) {
    log_report(*report);
    const bool continues =
        report->state != GpuletState::gone && report->state != GpuletState::failed;
    gpulet_ended_ = gpulet_ended_ || !continues;
  }
  if (FrontendLink* const link = link_to(effect.frontend))
    link->send(protocol::encode(effect.message));
}

void BackendDaemon::Impl::carry_out(node::DisconnectFrontend& effect) {
  if (FrontendLink* const link = link_to(effect.frontend)) link->close(effect.reason);
}

void BackendDaemon::Impl::set_timer() {
  const auto next = core_.next_wakeup();
  if (next >= timer_set_for_ && timer_set_for_ > net::now())
    return;  // the timer fires early enough and then sets itself again
  timer_set_for_ = next;
  if (next == kNever) {
    timer_.cancel();
    return;
  }
  timer_.set(next, [this] {
    timer_set_for_ = kNever;
    dispatch(node::TimePassed{});
  });
}

// ---- reloading

// The files may be where reading takes long.
void BackendDaemon::Impl::reload() {
  if (!config_.tls || stopping_) return;
  try {
    if (reader_ == nullptr) reader_ = std::make_unique<asio::thread_pool>(1);
    asio::post(*reader_, [this, watch = alive_.watch()] {
      auto read = std::make_shared<Result<net::TlsContextPointer>>(read_tls(config_));
      asio::post(io_, [this, watch, read] {
        if (watch.alive()) use_tls(std::move(*read));
      });
    });
  } catch (const std::exception& failure) {
    spdlog::warn("the certificate was not read again: {}", failure.what());
  }
}

void BackendDaemon::Impl::use_tls(Result<net::TlsContextPointer> read) {
  if (!read.ok()) {
    spdlog::warn("reload failed; the previous certificate stays in force: {}",
                 read.status().message());
    return;
  }
  for (const auto& link : links_) link->use_tls(read.value());
  spdlog::info("the certificate was read again; the next connections use it");
}

// ---- the end

void BackendDaemon::Impl::stop(std::function<void()> done) {
  if (stopping_) return;
  stopping_ = true;
  on_stopped_ = std::move(done);
  for (const auto& link : links_) link->stop();
  processes_.close_pool();
  dispatch(node::ShutDown{});
}

void BackendDaemon::Impl::finish_if_stopped() {
  if (!stopping_ || !core_.finished()) return;
  bool connected = false;
  for (const auto& link : links_) {
    connected = connected || link->connected().has_value();
    link->close_after_sending();  // on_disconnected() calls this again
  }
  if (connected) return;
  timer_.cancel();
  timer_set_for_ = kNever;
  // Posted, because it may destroy this.
  if (on_stopped_ != nullptr)
    asio::post(timer_.get_executor(), std::exchange(on_stopped_, nullptr));
}

BackendDaemon::BackendDaemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BackendDaemon::~BackendDaemon() = default;

std::unique_ptr<BackendDaemon> BackendDaemon::start(asio::io_context& io, Setup setup,
                                                    CoreObserver observer) {
  auto gpus = gpus_of(setup.devices);
  auto impl = std::make_unique<Impl>(io, std::move(setup), std::move(gpus), std::move(observer));
  impl->connect();
  return std::unique_ptr<BackendDaemon>(new BackendDaemon(std::move(impl)));
}

std::vector<pid_t> BackendDaemon::proxies() const { return impl_->proxies(); }
std::vector<pid_t> BackendDaemon::warm_proxies() const { return impl_->warm_proxies(); }
std::vector<pid_t> BackendDaemon::parked_proxies() const { return impl_->parked_proxies(); }
void BackendDaemon::reload() { impl_->reload(); }
void BackendDaemon::stop(std::function<void()> done) { impl_->stop(std::move(done)); }

}  // namespace gpulet::backend
