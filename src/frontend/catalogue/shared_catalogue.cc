#include "frontend/catalogue/shared_catalogue.h"

#include <algorithm>
#include <utility>

namespace gpulet::frontend {

SharedCatalogue::SharedCatalogue(net::asio::io_context& io, Owner& owner)
    : owner_(owner), patience_(io) {}

void SharedCatalogue::changed(Term term, std::string text, Done done) {
  term_ = std::max(term_, term);
  own_term_ = std::max(own_term_, term);
  state_.stamp = {term, state_.stamp.number + 1};
  adopting_ = false;
  waiting_.clear();  // they need these changes, not the earlier ones
  const auto bytes = std::as_bytes(std::span(text));
  state_.text = Bytes::own(std::vector<std::byte>(bytes.begin(), bytes.end()));
  pending_.push_back({state_.stamp, owner_.listeners(), net::now() + kPatience, std::move(done)});
  owner_.tell(state_);
  finish_pending();
}

void SharedCatalogue::follow(Term term, const std::string& leader, bool own) {
  leader_ = leader;
  term_ = std::max(term_, term);
  if (own) own_term_ = std::max(own_term_, term);
  for (auto& [from, early] : std::exchange(early_, {}))
    on_state(from, std::move(early.state), std::move(early.adopted));
}

void SharedCatalogue::on_state(const std::string& from, CatalogueState state, OnAdopted adopted) {
  const CatalogueStamp& stamp = state.stamp;
  if (stamp.number > kMostChanges) return;
  if (stamp.term > term_) {
    early_.insert_or_assign(from, Early{std::move(state), std::move(adopted)});
    return;
  }
  const bool known = stamp <= state_.stamp;  // adopting it would change nothing
  const bool by_leader = stamp.term < term_ || leader_.empty() || from == leader_;
  if (!known && (!by_leader || stamp.term == own_term_)) return;
  adopt(std::move(state), std::move(adopted));
}

void SharedCatalogue::adopt(CatalogueState state, OnAdopted adopted) {
  if (state.stamp < state_.stamp) return;
  if (state.stamp == state_.stamp && !adopting_) return adopted(state.stamp);
  waiting_.push_back(std::move(adopted));
  if (state.stamp == state_.stamp) return;
  state_ = std::move(state);
  adopting_ = true;
  owner_.adopt(state_.text, [this, stamp = state_.stamp] {
    if (stamp != state_.stamp) return;  // later changes are being adopted
    adopting_ = false;
    for (const auto& call : std::exchange(waiting_, {})) call(stamp);
  });
  owner_.tell(state_);
}

void SharedCatalogue::on_adopted(ClientId listener, const CatalogueStamp& stamp) {
  for (Pending& one : pending_) {
    if (one.stamp <= stamp) one.missing.erase(listener);
  }
  finish_pending();
}

void SharedCatalogue::on_gone(ClientId listener) {
  for (Pending& one : pending_) one.missing.erase(listener);
  finish_pending();
}

void SharedCatalogue::finish_pending() {
  const Time now = net::now();
  std::vector<Done> done;
  std::erase_if(pending_, [&](Pending& one) {
    const bool over = one.missing.empty() || now >= one.until;
    if (over) done.push_back(std::move(one.done));
    return over;
  });
  for (const auto& call : done) call();
  if (!pending_.empty()) patience_.set(pending_.front().until, [this] { finish_pending(); });
}

void SharedCatalogue::stop() {
  patience_.cancel();
  for (Pending& one : std::exchange(pending_, {})) one.done();
}

}  // namespace gpulet::frontend
