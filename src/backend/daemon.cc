#include "gpulet/backend/daemon.h"

#include <spdlog/spdlog.h>

#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "backend/gpulet_processes.h"
#include "backend/reconnecting.h"
#include "gpulet/backend/model_receiver.h"
#include "gpulet/net/alarm.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/clock.h"
#include "gpulet/net/codec/codec.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/connector.h"
#include "gpulet/serve/backend_core.h"

namespace gpulet::backend {
namespace {

namespace asio = net::asio;

void log(const serve::GpuletReport& report) {
  const auto name = serve::to_string(report.state);
  if (report.status.ok()) {
    spdlog::info("gpulet {}: {}", report.id.value, name);
  } else {
    spdlog::warn("gpulet {}: {}: {}", report.id.value, name, report.status.to_string());
  }
}

void log(const serve::DeviceReport& report) {
  if (report.fault.ok()) {
    spdlog::info("device {}: is back", report.device);
  } else {
    spdlog::error("device {}: lost: {}", report.device, report.fault.message());
  }
}

net::ConnectorOptions connector_options(const Setup& setup) {
  net::ConnectorOptions options;
  options.tls = setup.tls;
  return options;
}

// Of the devices that are some, by number.
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
                [this](serve::BackendEvent event) { happen(std::move(event)); }),
        buffers_(net::BufferPoolOptions()),
        connector_(io.get_executor(), setup.config.frontend.host, setup.config.frontend.port,
                   connector_options(setup)),
        timer_(io),
        processes_(io.get_executor(), std::move(setup.devices), setup.config.warm_proxies,
                   std::move(setup.proxy_user),
                   {setup.config.proxy_sandbox, setup.config.proxy_environment},
                   [this](serve::BackendEvent event) { happen(std::move(event)); }),
        watch_(io.get_executor(), std::move(gpus), std::move(setup.gpu_watch),
               [this](std::uint32_t device, const GpuWatch::Finding& found) {
                 const gpu::GpuPower& power = found.power;
                 happen(serve::DeviceSeen{
                     device, found.fault, {device, power.usage_w, power.limit_w, power.energy_j}});
               }) {}

  void connect(Duration at_least = {});
  void stop(std::function<void()> done);
  [[nodiscard]] std::vector<pid_t> proxies() const { return processes_.processes(); }
  [[nodiscard]] std::vector<pid_t> warm_proxies() const { return processes_.warm_processes(); }

 private:
  // The connection to the frontend.
  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  void on_closed(const Status& reason) override;
  void on_connected(net::Stream stream);
  void on_absent(const Status& failure);

  // What the frontend says.
  void obey(serve::Welcome& command);
  void obey(serve::Heartbeat& command) { happen(command); }
  void obey(serve::RetireGpulet& command) { happen(command); }
  void obey(serve::Refused& command);
  void obey(serve::SetCores& command) { happen(command); }
  void obey(serve::AssignGpulet& command) { happen(std::move(command)); }
  void obey(serve::CreateGpulet& command);
  void obey(Batch& command);
  void obey(serve::ModelPiece& command);

  // The core: every event goes in here, its effects are carried out before the next one.
  void happen(serve::BackendEvent event);
  void handle(serve::BackendEvent event);
  void wake_in_time();
  void end_when_finished();

  void carry_out(serve::TellFrontend& effect);
  void carry_out(serve::DropFrontend& effect);
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
  Reconnecting reconnecting_;
  std::shared_ptr<net::Connection> connection_;
  bool welcome_ = false;             // on this connection, and not refused since
  std::optional<Time> batch_began_;  // first byte of the batch that is being received
  std::deque<serve::BackendEvent> events_;
  bool handling_ = false;
  bool gpulet_went_ = false;  // files that it alone used are no longer in use
  net::Alarm timer_;
  Time timer_set_for_ = kNever;
  bool stopping_ = false;
  std::function<void()> on_stopped_;  // not empty: still to be called
  GpuletProcesses processes_;         // its end makes no more events
  GpuWatch watch_;
};

// ---- the frontend

void BackendDaemon::Impl::connect(Duration at_least) {
  connector_.connect_with_retry([this](net::Stream stream) { on_connected(std::move(stream)); },
                                [this](const Status& failure, Duration) { on_absent(failure); },
                                at_least);
}

void BackendDaemon::Impl::on_absent(const Status& failure) {
  if (!reconnecting_.absent(net::now())) return;
  spdlog::info("waiting for the frontend at {}: {}", frontend_, failure.message());
}

void BackendDaemon::Impl::on_connected(net::Stream stream) {
  welcome_ = false;
  connection_ = net::Connection::start(std::move(stream), net::ConnectionOptions(), *this);
  happen(serve::FrontendConnected{});
}

void BackendDaemon::Impl::on_closed(const Status& reason) {
  const bool refused = !welcome_ && !stopping_;
  const Duration pause = reconnecting_.ended(refused);
  if (refused) {
    spdlog::warn("frontend {}: this backend was not let in: {}; trying again in {:.0f} s",
                 frontend_, reason.message(), to_seconds(pause));
  } else {
    spdlog::warn("frontend {}: {}", frontend_, reason.message());
  }
  connection_.reset();
  batch_began_.reset();
  models_.forget_unfinished();
  happen(serve::FrontendLost{});
  if (!stopping_) connect(pause);
}

// A batch is received straight into memory that its proxy reads.
Result<MutableBytes> BackendDaemon::Impl::payload_memory(const net::FrameHeader& header,
                                                         std::span<const std::byte> message) {
  if (header.type == net::MessageType::batch) {
    batch_began_ = net::now();
    const auto command = net::decode_backend_command(header, message, Bytes());
    if (!command.ok()) return command.status();
    const auto gpulet = std::get<Batch>(command.value()).gpulet;
    if (core_.takes_batches(gpulet)) {
      auto slot = processes_.take_slot(gpulet, header.payload_bytes);
      if (slot) return std::move(*slot);
    }
  }
  return buffers_.take(header.payload_bytes);
}

void BackendDaemon::Impl::on_frame(const net::FrameHeader& header,
                                   std::span<const std::byte> message, MutableBytes payload) {
  auto command = net::decode_backend_command(header, message, payload.freeze());
  if (!command.ok()) {
    connection_->close(command.status());
    return;
  }
  std::visit([this](auto& kind) { obey(kind); }, command.value());
}

void BackendDaemon::Impl::obey(serve::Welcome& command) {
  const Duration absent = reconnecting_.welcomed(net::now());
  welcome_ = true;
  if (absent > Duration::zero()) {
    spdlog::info("frontend {}: connected as node {}, after {:.1f} s", frontend_, node_,
                 to_seconds(absent));
  } else {
    spdlog::info("frontend {}: connected as node {}", frontend_, node_);
  }
  happen(command);
}

// The end of the connection follows, and is logged with the reason.
void BackendDaemon::Impl::obey(serve::Refused& command) {
  welcome_ = false;
  const Status why = command.why.ok() ? Status(StatusCode::unavailable, "no reason was given")
                                      : std::move(command.why);
  if (connection_ != nullptr) connection_->close(why);
}

void BackendDaemon::Impl::obey(serve::CreateGpulet& command) {
  serve::GpuletAsked asked{std::move(command), {}};
  for (const auto& model : asked.create.models) {
    const auto file = models_.use(model.sha256);
    if (file) asked.stored.emplace(model.sha256, file->string());
  }
  happen(std::move(asked));
}

void BackendDaemon::Impl::obey(Batch& command) {
  serve::BatchArrived arrived;
  arrived.arrived = std::exchange(batch_began_, std::nullopt).value_or(net::now());
  arrived.placed =
      !command.inputs.empty() && processes_.holds(command.gpulet, command.inputs.front());
  arrived.batch = std::move(command);
  happen(std::move(arrived));
}

void BackendDaemon::Impl::obey(serve::ModelPiece& command) {
  happen(serve::Heartbeat{});  // a long file is as good a sign of life
  if (command.offset == 0) models_.keep_only(core_.files_in_use());  // it may need their space
  const auto taken = models_.take(std::move(command));
  if (!taken.ok() && connection_ != nullptr) connection_->close(taken);
}

// ---- the core

// Carrying out an effect may make events: they wait for the rest of the effects.
void BackendDaemon::Impl::happen(serve::BackendEvent event) {
  events_.push_back(std::move(event));
  if (handling_) return;
  handling_ = true;
  while (!events_.empty()) {
    auto next = std::move(events_.front());
    events_.pop_front();
    handle(std::move(next));
  }
  handling_ = false;
  if (std::exchange(gpulet_went_, false)) models_.keep_only(core_.files_in_use());
  wake_in_time();
  end_when_finished();
}

void BackendDaemon::Impl::handle(serve::BackendEvent event) {
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

void BackendDaemon::Impl::carry_out(serve::TellFrontend& effect) {
  if (const auto* report = std::get_if<serve::DeviceReport>(&effect.message)) log(*report);
  if (const auto* report = std::get_if<serve::GpuletReport>(&effect.message)) {
    log(*report);
    const bool serves_on =
        report->state != serve::GpuletState::gone && report->state != serve::GpuletState::failed;
    gpulet_went_ = gpulet_went_ || !serves_on;
  }
  if (connection_ != nullptr) connection_->send(net::encode(effect.message));
}

void BackendDaemon::Impl::carry_out(serve::DropFrontend& effect) {
  if (connection_ != nullptr) connection_->close(effect.reason);
}

void BackendDaemon::Impl::wake_in_time() {
  const auto next = core_.next_wakeup();
  if (next >= timer_set_for_ && timer_set_for_ > net::now())
    return;  // it will wake early enough, and look again
  timer_set_for_ = next;
  if (next == kNever) {
    timer_.cancel();
    return;
  }
  timer_.set(next, [this] {
    timer_set_for_ = kNever;
    happen(serve::TimePassed{});
  });
}

// ---- the end

void BackendDaemon::Impl::stop(std::function<void()> done) {
  if (stopping_) return;
  stopping_ = true;
  on_stopped_ = std::move(done);
  connector_.close();
  processes_.close_pool();
  happen(serve::ShutDown{});
}

void BackendDaemon::Impl::end_when_finished() {
  if (!stopping_ || !core_.finished()) return;
  if (connection_ != nullptr) {
    connection_->close_after_sending();  // comes back here once closed
    return;
  }
  timer_.cancel();
  timer_set_for_ = kNever;
  // Posted: it may destroy this.
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
