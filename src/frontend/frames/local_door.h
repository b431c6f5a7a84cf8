// LocalDoor: where backends of this machine leave TCP. A backend that was welcomed over TCP gets an
// offer with a secret of its own; a process that shows the secret at the door is that backend. Type
// of one strand, as net::Connection.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "gpulet/base/status.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/listener.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::frontend {

class LocalDoor {
 public:
  class Owner {
   public:
    // The backend showed its secret on this socket. Called once for an offer.
    virtual void on_local(BackendId backend, net::StreamSocket socket) = 0;

   protected:
    ~Owner() = default;
  };

  // Fails with unavailable. `owner` must outlive it.
  [[nodiscard]] static Result<std::unique_ptr<LocalDoor>> open(
      const net::asio::any_io_executor& executor, Owner& owner,
      net::LocalListenerOptions options = {});

  // Replaces an earlier offer to that backend.
  [[nodiscard]] LocalOffer offer(BackendId backend);
  // The backend's connection ended.
  void withdraw(BackendId backend);

 private:
  explicit LocalDoor(Owner& owner) : owner_(owner) {}
  void on_peer(const std::string& secret, net::StreamSocket socket);

  Owner& owner_;
  std::map<BackendId, std::string> secrets_;  // of the offers that are open
  std::unique_ptr<net::LocalListener> listener_;
};

}  // namespace gpulet::frontend
