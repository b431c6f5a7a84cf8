#include "frontend/frames/reply_router.h"

#include <utility>

namespace gpulet::frontend {

void ReplyRouter::reply(ClientId client, InferReply reply) const {
  if (ReplyOutbox* const outbox = outbox_of(client)) return outbox->add(client, std::move(reply));
  if (ReplySink* const sink = find(client)) sink->reply(std::move(reply));
}

void ReplyRouter::send(ClientId client, const protocol::OutgoingFrame& answer) const {
  if (ReplyOutbox* const outbox = outbox_of(client)) return outbox->add(client, answer);
  if (ReplySink* const sink = find(client)) sink->send(answer);
}

void ReplyOutbox::put(Item item) {
  items_.push_back(std::move(item));
  if (items_.size() == 1) net::asio::post(engine_io_, [this] { flush(); });
}

void ReplyOutbox::flush() {
  net::asio::post(io_, [&router = there_, items = std::exchange(items_, {})]() mutable {
    deliver(items, router);
  });
}

void ReplyOutbox::deliver(std::vector<Item>& items, const ReplyRouter& router) {
  for (Item& item : items) {
    ReplySink* const sink = router.find(item.client);
    if (sink == nullptr) continue;
    if (auto* const reply = std::get_if<InferReply>(&item.content)) {
      sink->reply(std::move(*reply));
    } else {
      sink->send(std::get<protocol::OutgoingFrame>(item.content));
    }
  }
}

}  // namespace gpulet::frontend
