#include "backend_sessions.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "options.h"

namespace gpulet::frontend {

BackendSessions::BackendSessions(net::asio::io_context& io, bool certified,
                                 net::BufferPool& buffers, Owner owner)
    : io_(io), options_{.certified = certified}, buffers_(buffers), owner_(std::move(owner)) {}

void BackendSessions::accept(BackendId id, net::Stream stream, net::ConnectionSlot slot) {
  BackendSession::Owner owner;
  owner.on_message = [this, id](serve::BackendMessage message) {
    if (contains(id)) owner_.deliver(serve::BackendSaid{id, std::move(message)});
  };
  owner.breach_of_result = [this, id](BatchId batch) { return owner_.breach_of_result(id, batch); };
  owner.on_breach = [this, id](const serve::PeerBreach& breach) {
    owner_.deliver(serve::BackendBroke{id, breach});
  };
  owner.on_closed = [this, id](const Status& reason) { closed(id, reason); };
  sessions_[id] =
      std::make_unique<BackendSession>(io_.get_executor(), std::move(stream), std::move(slot),
                                       backend_options(), options_, buffers_, std::move(owner));
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

void BackendSessions::closed(BackendId id, const Status& reason) {
  forget(refused_, id);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const bool introduced = found->second->introduced();
  forget(sessions_, id);
  if (reason.code() == StatusCode::malformed || reason.code() == StatusCode::invalid) {
    owner_.deliver(serve::BackendBroke{id, {serve::PeerViolation::malformed, reason}});
    return;
  }
  if (!introduced && reason.code() != StatusCode::cancelled)
    spdlog::warn("a backend was refused: {}", reason.message());
  owner_.deliver(serve::BackendGone{id, reason});
}

}  // namespace gpulet::frontend
