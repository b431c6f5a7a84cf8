#include "backend/daemon.h"

#include <spdlog/spdlog.h>

#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "backend/gpulet_processes.h"
#include "backend/model_receiver.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/protocol/codec.h"
#include "gpulet/serve/backend_core.h"

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

serve::BackendCoreOptions core_options(const Setup& setup) {
  serve::BackendCoreOptions options;
  options.node = setup.config.node;
  for (const auto& device : setup.devices) options.devices.push_back(device.offer);
  options.profiles = setup.profiles;
  options.hang_timeout = setup.config.hang_timeout;
  options.hang_factor = setup.config.hang_factor;
  return options;
}

}  // namespace

class BackendDaemon::Impl : private net::ConnectionHandler {
 public:
  Impl(asio::io_context& io, Setup setup, std::map<std::uint32_t, std::string> gpus,
       CoreObserver observer)
      : core_(core_options(setup)),
        observer_(std::move(observer)),
        node_(setup.config.node),
        frontend_(config::to_string(setup.config.frontend)),
        models_(io.get_executor(), std::move(setup.store),
                [this](serve::BackendEvent event) { dispatch(std::move(event)); }),
        buffers_(net::BufferPoolOptions()),
        connector_(io.get_executor(), setup.config.frontend.host, setup.config.frontend.port,
                   {.tls = setup.tls}),
        timer_(io),
        processes_(io.get_executor(), std::move(setup.devices), setup.config.warm_proxies,
                   std::move(setup.proxy_user),
                   {setup.config.proxy_sandbox, setup.config.proxy_environment},
                   [this](serve::BackendEvent event) { dispatch(std::move(event)); }),
        monitor_(
            io.get_executor(), std::move(gpus), std::move(setup.gpu_monitor),
            [this](std::uint32_t device, const GpuMonitor::Sample& sample) {
              const gpu::GpuPower& power = sample.power;
              dispatch(serve::DeviceHealthReported{
                  device, sample.fault, {device, power.usage_w, power.limit_w, power.energy_j}});
            }) {}

  void connect(Duration min_delay = {});
  void stop(std::function<void()> done);
  [[nodiscard]] std::vector<pid_t> proxies() const { return processes_.processes(); }
  [[nodiscard]] std::vector<pid_t> warm_proxies() const { return processes_.warm_processes(); }

 private:
  // The connection to the frontend
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  void on_closed(const Status& reason) override;
  void on_connected(net::Stream stream);
  void on_unreachable(const Status& failure);

  // The frontend's messages
  template <typename Command>
  void on_message(Command& command) {
    dispatch(std::move(command));
  }
  void on_message(Welcome& command);
  void on_message(Refused& command);
  void on_message(CreateGpulet& command);
  void on_message(Batch& command);
  void on_message(ModelPiece& command);

  // Passes an event to the core and carries out its effects before the next event.
  void dispatch(serve::BackendEvent event);
  void dispatch_one(serve::BackendEvent event);
  void set_timer();
  void finish_if_stopped();

  void carry_out(serve::SendToFrontend& effect);
  void carry_out(serve::DisconnectFrontend& effect);
  void carry_out(serve::StartGpulet& effect) { processes_.start(std::move(effect)); }
  void carry_out(serve::ActivateShare& effect) { processes_.activate(effect.gpulet); }
  void carry_out(serve::AdjustCores& effect) { processes_.adjust(effect.gpulet, effect.cores); }
  void carry_out(serve::RunOnProxy& effect) { processes_.run(std::move(effect)); }
  void carry_out(serve::FinishProxy& effect) { processes_.finish(effect.gpulet); }
  void carry_out(serve::KillProxy& effect) { processes_.kill(effect.gpulet, effect.reason); }

  serve::BackendCore core_;
  const CoreObserver observer_;
  const std::string node_;
  const std::string frontend_;
  ModelReceiver models_;
  net::BufferPool buffers_;
  net::Connector connector_;
  ReconnectBackoff reconnect_;
  std::shared_ptr<net::Connection> connection_;
  bool welcomed_ = false;            // on this connection, and not refused since
  std::optional<Time> batch_began_;  // the first byte of the batch that is being received
  std::deque<serve::BackendEvent> events_;
  bool dispatching_ = false;
  bool gpulet_ended_ = false;  // files that only it used are no longer in use
  net::Alarm timer_;
  Time timer_set_for_ = kNever;
  bool stopping_ = false;
  std::function<void()> on_stopped_;  // empty once called
  GpuletProcesses processes_;
  GpuMonitor monitor_;
};

// ---- the frontend

void BackendDaemon::Impl::connect(Duration min_delay) {
  connector_.connect_with_retry(
      [this](net::Stream stream) { on_connected(std::move(stream)); },
      [this](const Status& failure, Duration) { on_unreachable(failure); }, min_delay);
}

void BackendDaemon::Impl::on_unreachable(const Status& failure) {
  if (!reconnect_.on_unreachable(net::now())) return;
  spdlog::info("waiting for the frontend at {}: {}", frontend_, failure.message());
}

void BackendDaemon::Impl::on_connected(net::Stream stream) {
  welcomed_ = false;
  connection_ = net::Connection::start(std::move(stream), net::ConnectionOptions(), *this);
  dispatch(serve::FrontendConnected{});
}

void BackendDaemon::Impl::on_closed(const Status& reason) {
  const bool refused = !welcomed_ && !stopping_;
  const Duration delay = reconnect_.on_closed(refused);
  if (refused) {
    spdlog::warn("frontend {}: rejected this backend: {}; retrying in {:.0f} s", frontend_,
                 reason.message(), to_seconds(delay));
  } else {
    spdlog::warn("frontend {}: {}", frontend_, reason.message());
  }
  connection_.reset();
  batch_began_.reset();
  models_.forget_unfinished();
  dispatch(serve::FrontendDisconnected{});
  if (!stopping_) connect(delay);
}

// Receives a batch directly into the memory of its proxy.
Result<MutableBytes> BackendDaemon::Impl::payload_memory(const protocol::FrameHeader& header,
                                                         std::span<const std::byte> message) {
  if (header.type == protocol::MessageType::batch) {
    batch_began_ = net::now();
    const auto command = protocol::decode<BackendCommand>(header, message, Bytes());
    if (!command.ok()) return command.status();
    const auto gpulet = std::get<Batch>(command.value()).gpulet;
    if (core_.takes_batches(gpulet)) {
      auto slot = processes_.take_slot(gpulet, header.payload_bytes);
      if (slot) return std::move(*slot);
    }
  }
  return buffers_.take(header.payload_bytes);
}

void BackendDaemon::Impl::on_frame(const protocol::FrameHeader& header,
                                   std::span<const std::byte> message, MutableBytes payload) {
  auto command = protocol::decode<BackendCommand>(header, message, payload.freeze());
  if (!command.ok()) {
    connection_->close(command.status());
    return;
  }
  std::visit([this](auto& kind) { on_message(kind); }, command.value());
}

void BackendDaemon::Impl::on_message(Welcome& command) {
  const Duration unreachable = reconnect_.on_welcome(net::now());
  welcomed_ = true;
  if (unreachable > Duration::zero()) {
    spdlog::info("frontend {}: connected as node {}, after {:.1f} s", frontend_, node_,
                 to_seconds(unreachable));
  } else {
    spdlog::info("frontend {}: connected as node {}", frontend_, node_);
  }
  dispatch(command);
}

// Closes the connection; on_closed() logs the reason.
void BackendDaemon::Impl::on_message(Refused& command) {
  welcomed_ = false;
  const Status why = command.why.ok() ? Status(StatusCode::unavailable, "no reason given")
                                      : std::move(command.why);
  if (connection_ != nullptr) connection_->close(why);
}

void BackendDaemon::Impl::on_message(CreateGpulet& command) {
  serve::GpuletRequested request{std::move(command), {}};
  for (const auto& model : request.create.models) {
    const auto file = models_.use(model.sha256);
    if (file) request.stored.emplace(model.sha256, file->string());
  }
  dispatch(std::move(request));
}

void BackendDaemon::Impl::on_message(Batch& command) {
  serve::BatchArrived arrived;
  arrived.arrived = std::exchange(batch_began_, std::nullopt).value_or(net::now());
  arrived.placed =
      !command.inputs.empty() && processes_.holds(command.gpulet, command.inputs.front());
  arrived.batch = std::move(command);
  dispatch(std::move(arrived));
}

void BackendDaemon::Impl::on_message(ModelPiece& command) {
  dispatch(Heartbeat{});  // a piece of a file also shows that the frontend is alive
  if (command.offset == 0)
    models_.keep_only(core_.files_in_use());  // the new file may need their space
  const auto added = models_.add(std::move(command));
  if (!added.ok() && connection_ != nullptr) connection_->close(added);
}

// ---- the core

// Effects may cause events; these wait until the other effects are carried out.
void BackendDaemon::Impl::dispatch(serve::BackendEvent event) {
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

void BackendDaemon::Impl::dispatch_one(serve::BackendEvent event) {
  serve::BackendEffects effects;
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

void BackendDaemon::Impl::carry_out(serve::SendToFrontend& effect) {
  if (const auto* report = std::get_if<DeviceReport>(&effect.message)) log_report(*report);
  if (const auto* report = std::get_if<GpuletReport>(&effect.message)) {
    log_report(*report);
    const bool continues =
        report->state != GpuletState::gone && report->state != GpuletState::failed;
    gpulet_ended_ = gpulet_ended_ || !continues;
  }
  if (connection_ != nullptr) connection_->send(protocol::encode(effect.message));
}

void BackendDaemon::Impl::carry_out(serve::DisconnectFrontend& effect) {
  if (connection_ != nullptr) connection_->close(effect.reason);
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
    dispatch(serve::TimePassed{});
  });
}

// ---- the end

void BackendDaemon::Impl::stop(std::function<void()> done) {
  if (stopping_) return;
  stopping_ = true;
  on_stopped_ = std::move(done);
  connector_.close();
  processes_.close_pool();
  dispatch(serve::ShutDown{});
}

void BackendDaemon::Impl::finish_if_stopped() {
  if (!stopping_ || !core_.finished()) return;
  if (connection_ != nullptr) {
    connection_->close_after_sending();  // on_closed() calls this again
    return;
  }
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
void BackendDaemon::stop(std::function<void()> done) { impl_->stop(std::move(done)); }

}  // namespace gpulet::backend
