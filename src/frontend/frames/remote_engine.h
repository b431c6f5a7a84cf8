// RemoteEngine: the engine as the connections of one I/O thread see it. What they have for the
// engine crosses through the EngineInbox; what the engine has for them comes back through the
// ReplyOutbox. They judge requests by the ModelBoard.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "frontend/frames/client_sessions.h"
#include "frontend/frames/engine_link.h"
#include "frontend/frames/model_board.h"
#include "frontend/frames/reply_router.h"
#include "frontend/loop/engine_inbox.h"
#include "frontend/loop/event_sink.h"
#include "gpulet/net/asio.h"

namespace gpulet::frontend {

// What connections of I/O threads reach of the engine's thread. The references must outlive every
// copy.
struct EngineThread {
  net::asio::io_context& io;
  EngineInbox& inbox;
  const ModelBoard& models;
  ClientRequests& requests;  // called on the engine's thread
};

// Belongs to its I/O thread, except outbox(). Both io_contexts must have stopped before it is
// destroyed.
class RemoteEngine final : private EventSink, private PayloadCheck, private ClientRequests {
 public:
  RemoteEngine(const EngineThread& engine, net::asio::io_context& io, ThreadOfConnections thread)
      : engine_(engine),
        io_(io),
        replies_(thread),
        outbox_(engine.io, io, replies_),
        models_(engine.models) {}
  RemoteEngine(const RemoteEngine&) = delete;
  RemoteEngine& operator=(const RemoteEngine&) = delete;

  [[nodiscard]] net::asio::io_context& io() const { return io_; }
  // For connections of clients. Backends and other frontends belong to the engine's thread.
  [[nodiscard]] EngineLink link() { return {*this, replies_, *this}; }
  [[nodiscard]] ClientRequests& requests() { return *this; }
  [[nodiscard]] const ModelReader& models() const { return models_; }
  // Calls on the engine's thread, in order with the events of this thread.
  void call(EngineInbox::Call call) { engine_.inbox.call(std::move(call)); }
  // Belongs to the engine's thread.
  [[nodiscard]] ReplyOutbox& outbox() { return outbox_; }

 private:
  void deliver(serve::FrontendEvent event) override { engine_.inbox.deliver(std::move(event)); }
  void deliver_from(std::string_view /*address*/, serve::FrontendEvent event) override {
    deliver(std::move(event));
  }
  [[nodiscard]] Status accepts(const InferRequest& request,
                               std::size_t payload_bytes) const override;
  [[nodiscard]] std::optional<serve::PeerBreach> breach_of_result(
      BackendId /*from*/, BatchId /*batch*/) const override {
    return std::nullopt;
  }
  void on_models_request(ClientId client, const ModelsRequest& request) override;
  void on_change(ClientId client, ModelsChange change, const access::PeerIdentity& peer) override;
  void on_status_request(ClientId client, const StatusRequest& request) override;
  void on_gone(ClientId client) override;

  const EngineThread engine_;
  net::asio::io_context& io_;
  ReplyRouter replies_;
  ReplyOutbox outbox_;
  ModelReader models_;
};

}  // namespace gpulet::frontend
