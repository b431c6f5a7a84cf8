#include "bench/serve/pauses_nodes.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "gpulet/net/connection.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::bench {

namespace asio = net::asio;

class MadeUpNodes::Node final : public net::ConnectionHandler {
 public:
  Node(asio::io_context& io, std::uint16_t port, std::string name, std::uint32_t devices)
      : connector_(io.get_executor(), "127.0.0.1", port, {}), timer_(io), name_(std::move(name)) {
    for (std::uint32_t i = 0; i < devices; ++i) {
      DeviceOffer offer;
      offer.device = {{name_, i}, "card", "simulated", {}};
      for (const int percent : {20, 40, 50, 60, 80, 100})
        offer.device.sizes.push_back(Share{percent});
      offer.mechanism = "simulated";
      devices_.push_back(std::move(offer));
    }
    connect();
    beat();
  }

  void reconnect() {
    connection_.reset();
    connect();
  }

 private:
  void connect() {
    connector_.connect([this](Result<net::Stream> stream) {
      if (!stream.ok()) {
        std::fprintf(stderr, "%s: %s\n", name_.c_str(), stream.status().message().c_str());
        return;
      }
      connection_ = net::Connection::start(std::move(stream).value(), {}, *this);
      Hello hello;
      hello.node = name_;
      hello.devices = devices_;
      for (const auto& [id, report] : gpulets_) hello.gpulets.push_back(report);
      say(std::move(hello));
    });
  }

  void beat() {
    timer_.expires_after(std::chrono::milliseconds(300));
    timer_.async_wait([this](const boost::system::error_code& failure) {
      if (failure) return;
      if (connection_ != nullptr) say(Heartbeat{});
      beat();
    });
  }

  void say(BackendMessage message) { connection_->send(protocol::encode(message)); }

  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte>) override {
    auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
    const std::span<std::byte> view(*memory);
    return MutableBytes(std::move(memory), view);
  }
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    auto command = protocol::decode<BackendCommand>(header, message, payload.freeze());
    if (!command.ok()) {
      std::fprintf(stderr, "%s: %s\n", name_.c_str(), command.status().message().c_str());
      return;
    }
    std::visit([this](auto& one) { obey(one); }, command.value());
  }
  void on_closed(const Status& reason) override {
    std::fprintf(stderr, "%s: %s\n", name_.c_str(), reason.message().c_str());
  }

  template <typename Other>
  void obey(const Other& /*command*/) {}
  void obey(const CreateGpulet& command) {
    GpuletReport& report = gpulets_[command.id];
    report.id = command.id;
    report.device = command.device;
    report.size = command.size;
    report.state = GpuletState::ready;
    report.part = command.part;
    for (const ModelToServe& model : command.models)
      report.models.push_back({model.name, model.max_batch, version_of(model)});
    std::sort(report.models.begin(), report.models.end());
    say(report);
  }
  void obey(const AssignGpulet& command) { gpulets_[command.id].part = command.part; }
  void obey(const RetireGpulet& command) {
    const auto found = gpulets_.find(command.id);
    if (found == gpulets_.end()) return;
    found->second.state = GpuletState::gone;
    say(found->second);
    gpulets_.erase(found);
  }
  void obey(const Batch& command) {
    BatchResult result;
    result.id = command.id;
    result.status = {StatusCode::internal, "nothing computes here"};
    say(std::move(result));
  }

  net::Connector connector_;
  asio::steady_timer timer_;
  const std::string name_;
  std::vector<DeviceOffer> devices_;
  std::map<GpuletId, GpuletReport> gpulets_;
  std::shared_ptr<net::Connection> connection_;
};

MadeUpNodes::MadeUpNodes(std::uint16_t port, std::uint32_t nodes, std::uint32_t devices_each) {
  for (std::uint32_t i = 0; i < nodes; ++i)
    nodes_.push_back(
        std::make_unique<Node>(io_, port, "n" + std::to_string(1000 + i), devices_each));
  thread_ = std::jthread([this] {
    const auto guard = asio::make_work_guard(io_);
    io_.run();
  });
}

MadeUpNodes::~MadeUpNodes() {
  io_.stop();
  thread_.join();
}

void MadeUpNodes::reconnect(std::size_t count) {
  asio::post(io_, [this, count] {
    for (std::size_t i = 0; i < std::min(count, nodes_.size()); ++i) nodes_[i]->reconnect();
  });
}

}  // namespace gpulet::bench
