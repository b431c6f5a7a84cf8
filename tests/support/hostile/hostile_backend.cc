#include "tests/support/hostile/hostile_backend.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "gpulet/net/connection.h"
#include "gpulet/net/tls.h"

namespace gpulet::testing {

using Clock = std::chrono::steady_clock;

HostileBackend::HostileBackend(std::uint16_t port, const std::optional<config::TlsFiles>& tls) {
  net::ConnectorOptions options;
  if (tls) options.tls = net::TlsContext::client(*tls).value();
  net::Connector connector(io_.get_executor(), "127.0.0.1", port, options);
  Status failure(StatusCode::timeout, "no answer");
  connector.connect([&](Result<net::Stream> stream) {
    if (!stream.ok()) {
      failure = stream.status();
      closed_ = failure;
      return;
    }
    connection_ = net::Connection::start(std::move(stream).value(), {}, *this);
  });
  run_until([&] { return connection_ != nullptr || closed_; });
  if (connection_ == nullptr) throw std::runtime_error(failure.to_string());
}

HostileBackend::~HostileBackend() = default;

void HostileBackend::say(const BackendMessage& message) {
  connection_->send(protocol::encode(message));
}

void HostileBackend::say_frame(protocol::OutgoingFrame frame) {
  connection_->send(std::move(frame));
}

void HostileBackend::announce_payload(protocol::MessageType type, const std::string& message,
                                      std::uint32_t bytes) {
  const auto header =
      protocol::encode_frame_header({type, static_cast<std::uint32_t>(message.size()), bytes});
  protocol::OutgoingFrame frame;
  frame.head.assign(reinterpret_cast<const char*>(header.data()), header.size());
  frame.head += message;
  connection_->send(std::move(frame));
}

bool HostileBackend::run_until(const std::function<bool()>& condition, Duration patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (!condition()) {
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return false;
    io_.restart();
    io_.run_one_until(std::min(deadline, now + std::chrono::milliseconds(20)));
  }
  return true;
}

std::optional<Status> HostileBackend::wait_until_refused(Duration patience) {
  if (!run_until([this] { return closed(); }, patience)) return std::nullopt;
  return refused();
}

bool HostileBackend::wait_until_welcome(Duration patience) {
  return run_until([this] { return !heard<Welcome>().empty() || closed(); }, patience) &&
         !heard<Welcome>().empty();
}

std::optional<Status> HostileBackend::refused() const {
  const auto refusals = heard<Refused>();
  if (refusals.empty()) return std::nullopt;
  return refusals.front().why;
}

Result<MutableBytes> HostileBackend::payload_memory(const protocol::FrameHeader& header,
                                                    std::span<const std::byte>) {
  auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
  const std::span<std::byte> view(*memory);
  return MutableBytes(std::move(memory), view);
}

void HostileBackend::on_frame(const protocol::FrameHeader& header,
                              std::span<const std::byte> message, MutableBytes payload) {
  auto decoded = protocol::decode<BackendCommand>(header, message, payload.freeze());
  if (!decoded.ok()) throw std::runtime_error(decoded.status().to_string());
  heard_.push_back(std::move(decoded).value());
}

Hello plain_hello(const std::string& node, std::uint32_t devices, const std::string& type) {
  Hello hello;
  hello.node = node;
  for (std::uint32_t i = 0; i < devices; ++i) {
    DeviceOffer offer;
    offer.device.key = {node, i};
    offer.device.type = type;
    offer.device.partitioning = "simulated";
    offer.device.sizes = {Share{20}, Share{40}, Share{60}, Share{80}, Share{100}};
    offer.mechanism = "simulated";
    hello.devices.push_back(offer);
  }
  return hello;
}

GpuletReport plain_report(GpuletId id, GpuletState state,
                          std::vector<partition::RunningModel> models) {
  GpuletReport report;
  report.id = id;
  report.size = Share{20};
  report.state = state;
  report.models = std::move(models);
  return report;
}

}  // namespace gpulet::testing
