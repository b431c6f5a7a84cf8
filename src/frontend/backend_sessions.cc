#include "backend_sessions.h"

#include <string>
#include <utility>

namespace gpulet::frontend {

BackendSessions::BackendSessions(net::asio::io_context& io,
                                 const net::ConnectionOptions& connection,
                                 const BackendSession::Options& options, net::BufferPool& buffers,
                                 Owner owner)
    : io_(io),
      connection_options_(connection),
      options_(options),
      buffers_(buffers),
      owner_(std::move(owner)) {}

void BackendSessions::accept(BackendId id, net::Stream stream, net::ConnectionSlot slot) {
  const std::string address = stream.peer_address();
  BackendSession::Owner owner;
  owner.on_message = [this, id, address](serve::BackendMessage message) {
    if (contains(id)) owner_.deliver(serve::BackendSaid{id, std::move(message)}, address);
  };
  owner.breach_of_result = [this, id](BatchId batch) { return owner_.breach_of_result(id, batch); };
  owner.on_breach = [this, id, address](const serve::PeerBreach& breach) {
    owner_.deliver(serve::BackendBroke{id, breach}, address);
  };
  owner.on_closed = [this, id, address](const Status& reason) { closed(id, address, reason); };
  BackendSession::Options session_options = options_;
  session_options.port = owner_.port();
  sessions_[id] = std::make_unique<BackendSession>(io_.get_executor(), std::move(stream),
                                                   std::move(slot), connection_options_,
                                                   session_options, buffers_, std::move(owner));
}

void BackendSessions::send(BackendId id, const serve::BackendCommand& command) {
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) found->second->send(command);
}

void BackendSessions::refuse(BackendId id, const Status& why) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  found->second->refuse(why);
  refused_.insert(sessions_.extract(found));
}

void BackendSessions::close_all(const Status& reason) {
  for (auto& [id, session] : sessions_) session->close(reason);
  for (auto& [id, session] : refused_) session->close(reason);
}

void BackendSessions::forget(Sessions& sessions, BackendId id) {
  const auto found = sessions.find(id);
  if (found == sessions.end()) return;
  // The session may be on the stack: it ends in a turn of its own.
  net::asio::post(io_, [ended = std::shared_ptr(std::move(found->second))] {});
  sessions.erase(found);
}

void BackendSessions::closed(BackendId id, const std::string& address, const Status& reason) {
  forget(refused_, id);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const bool introduced = found->second->introduced();
  forget(sessions_, id);
  if (reason.code() == StatusCode::malformed || reason.code() == StatusCode::invalid) {
    owner_.deliver(serve::BackendBroke{id, {serve::PeerViolation::malformed, reason}}, address);
    return;
  }
  if (!introduced && reason.code() != StatusCode::cancelled)
    owner_.warn(address, "a backend at " + address + " was refused: " + reason.message());
  owner_.deliver(serve::BackendGone{id, reason}, address);
}

}  // namespace gpulet::frontend
