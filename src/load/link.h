// Link: a connection of the load generator that is opened again when it is lost, and the requests
// that wait for replies on it. Belongs to the thread that runs the io_context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_set>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/load/client.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/connection.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::load {

class LinkOwner {
 public:
  virtual ~LinkOwner() = default;
  virtual void on_reply(InferReply reply) = 0;
  virtual void on_link_lost(const std::unordered_set<std::uint64_t>& lost,
                            const Status& reason) = 0;
};

// One connection and its requests in flight.
class Wire : public net::ConnectionHandler {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // `waiting`: requests without a reply are left.
    virtual void on_reply(Wire& wire, InferReply reply, bool waiting) = 0;
    virtual void on_lost(Wire& wire, std::unordered_set<std::uint64_t> waiting,
                         const Status& reason) = 0;
  };

  Wire(Owner& owner, net::Stream stream, const std::string& token);

  void send(std::uint64_t tag, protocol::OutgoingFrame frame);
  [[nodiscard]] bool waits() const { return !waiting_.empty(); }

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  void on_closed(const Status& reason) override;

  Owner& owner_;
  std::shared_ptr<net::Connection> connection_;
  std::shared_ptr<std::vector<std::byte>> buffer_;
  std::unordered_set<std::uint64_t> waiting_;  // tags
};

// A connection to one of the endpoints. A lost one is opened again, at the next endpoint. One whose
// frontend stops (InferReply::leaving) is replaced first, if there are others, and ends with its
// last reply.
class Link : private Wire::Owner {
 public:
  // The owner, the context and the options must outlive it. `first`: the number of its first
  // endpoint, modulo their number.
  Link(LinkOwner& owner, net::asio::io_context& context, const LoadOptions& options,
       std::vector<config::Endpoint> endpoints, std::size_t first);

  // Tries once.
  void open(std::function<void(const Status&)> done);
  // Tries until it succeeds.
  void open() { reconnect(); }

  [[nodiscard]] bool is_open() const { return wire_ != nullptr; }
  // REQUIRES: is_open().
  void send(std::uint64_t tag, protocol::OutgoingFrame frame) {
    wire_->send(tag, std::move(frame));
  }

 private:
  net::Connector& next_connector();
  void reconnect();
  void use(net::Stream stream);
  void on_reply(Wire& wire, InferReply reply, bool waiting) override;
  void on_lost(Wire& wire, std::unordered_set<std::uint64_t> waiting,
               const Status& reason) override;
  // There is no other frontend for it: it ends with its last reply.
  void stop_using();
  // Posted, because the wire is on the stack.
  void forget(Wire& wire);

  LinkOwner& owner_;
  net::asio::io_context& context_;
  const LoadOptions& options_;
  const std::vector<config::Endpoint> endpoints_;
  std::size_t endpoint_;  // the next one
  std::unique_ptr<net::Connector> connector_;
  net::asio::steady_timer retry_{context_};
  std::unique_ptr<Wire> wire_;  // null while there is none
  bool replacing_ = false;      // a new one is being opened
  std::vector<std::unique_ptr<Wire>> leaving_;
};

}  // namespace gpulet::load
