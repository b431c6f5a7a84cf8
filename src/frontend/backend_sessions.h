// The connections of all backends. What they say and how they end becomes events of the core. A
// backend that is refused keeps its connection until it was told why; nothing that it says
// meanwhile is an event. Single-strand type, as Connection.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/listener.h"
#include "gpulet/serve/frontend_core.h"
#include "sessions.h"

namespace gpulet::frontend {

class BackendSessions {
 public:
  struct Owner {
    // An event, and the address of who caused it.
    std::function<void(serve::FrontendEvent, const std::string&)> deliver;
    std::function<std::optional<serve::PeerBreach>(BackendId, BatchId)> breach_of_result;
    // The one that they connect to, once it is open.
    std::function<FramePort()> port;
    // A line for the log, about who is at the address.
    std::function<void(const std::string& address, const std::string& text)> warn;
  };
  // `buffers` outlives this.
  BackendSessions(net::asio::io_context& io, const net::ConnectionOptions& connection,
                  const BackendSession::Options& options, net::BufferPool& buffers, Owner owner);

  void accept(BackendId id, net::Stream stream, net::ConnectionSlot slot);
  // Nothing where the backend has gone or was refused.
  void send(BackendId id, const serve::BackendCommand& command);
  void refuse(BackendId id, const Status& why);
  void close_all(const Status& reason);
  [[nodiscard]] bool contains(BackendId id) const { return sessions_.contains(id); }

 private:
  using Sessions = std::map<BackendId, std::unique_ptr<BackendSession>>;
  void forget(Sessions& sessions, BackendId id);
  void closed(BackendId id, const std::string& address, const Status& reason);

  net::asio::io_context& io_;
  const net::ConnectionOptions connection_options_;
  const BackendSession::Options options_;
  net::BufferPool& buffers_;
  const Owner owner_;
  Sessions sessions_;
  Sessions refused_;
};

}  // namespace gpulet::frontend
