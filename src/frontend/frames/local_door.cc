#include "frontend/frames/local_door.h"

#include <utility>

#include "gpulet/access/tokens.h"

namespace gpulet::frontend {

Result<std::unique_ptr<LocalDoor>> LocalDoor::open(const net::asio::any_io_executor& executor,
                                                   Owner& owner,
                                                   net::LocalListenerOptions options) {
  std::unique_ptr<LocalDoor> door(new LocalDoor(owner));
  LocalDoor& opened = *door;
  auto listener = net::LocalListener::listen(
      executor, std::move(options), [&opened](const std::string& secret, net::StreamSocket socket) {
        opened.on_peer(secret, std::move(socket));
      });
  if (!listener.ok()) return listener.status();
  door->listener_ = std::move(listener).value();
  return door;
}

LocalOffer LocalDoor::offer(BackendId backend) {
  std::string& secret = secrets_[backend];
  secret = net::draw_local_secret();
  return {listener_->name(), secret, net::LocalListener::user()};
}

void LocalDoor::withdraw(BackendId backend) { secrets_.erase(backend); }

// A socket with a secret of no offer closes.
void LocalDoor::on_peer(const std::string& secret, net::StreamSocket socket) {
  for (auto offer = secrets_.begin(); offer != secrets_.end(); ++offer) {
    if (!access::same_secret(offer->second, secret)) continue;
    const BackendId backend = offer->first;
    secrets_.erase(offer);
    return owner_.on_local(backend, std::move(socket));
  }
}

}  // namespace gpulet::frontend
