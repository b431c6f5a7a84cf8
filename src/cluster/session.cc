#include "cluster/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/records.h"

namespace gpulet::cluster {
namespace {

constexpr Duration kReadEvery = std::chrono::seconds(1);
constexpr Duration kCampaignJitter = std::chrono::milliseconds(50);
constexpr Duration kShortestPause = std::chrono::milliseconds(100);
constexpr Duration kLongestPause = std::chrono::seconds(1);
constexpr Duration kPauseAfterRefusal = std::chrono::seconds(10);
// Tolerates clocks whose rates differ by a quarter.
constexpr double kValidPart = 0.8;

Duration part_of(Duration duration, double part) {
  return std::chrono::duration_cast<Duration>(duration * part);
}

Duration jitter(Random& random, Duration from, Duration to) {
  return from + part_of(to - from, random.uniform());
}

std::string key_of(const Member& member) { return std::string(kMembersPrefix) + member.name; }

const StoredValue* find(const AllKeys& keys, std::string_view key) {
  const auto found = keys.values.find(std::string(key));
  return found == keys.values.end() ? nullptr : &found->second;
}

// Empty: the key is not there or not one of gpulet's.
std::optional<MemberRecord> member_in(const AllKeys& keys, std::string_view key) {
  const StoredValue* const stored = find(keys, key);
  if (stored == nullptr) return std::nullopt;
  Result<MemberRecord> record = parse_member(stored->value);
  return record.ok() ? std::optional(std::move(record).value()) : std::nullopt;
}

// The same place in the cluster, whichever process of the member holds it.
bool same_place(const Member& a, const Member& b) {
  return a.name == b.name && a.address == b.address && a.peer == b.peer;
}

std::optional<ClusterRecord> cluster_in(const AllKeys& keys) {
  const StoredValue* const stored = find(keys, kClusterKey);
  if (stored == nullptr) return std::nullopt;
  Result<ClusterRecord> record = parse_cluster(stored->value);
  return record.ok() ? std::optional(std::move(record).value()) : std::nullopt;
}

}  // namespace

Session::Session(SessionOptions options) : options_(std::move(options)), random_(options_.seed) {}

// ---- calls

Session::InFlight Session::call(Request request, Time now) {
  Call& made = calls_.emplace_back();
  made.number = ++last_call_;
  made.endpoint = endpoint_;
  made.request = std::move(request);
  return {last_call_, endpoint_, now};
}

void Session::main_call(Request request, Time now) {
  if (std::holds_alternative<ReadAll>(request)) {
    fresh_ = true;  // until a change is seen
    read_at_ = now + kReadEvery;
  }
  main_ = call(std::move(request), now);
}

void Session::advance(Time now) {
  if (left_) return;
  const bool may_call = now >= not_before_ && (logged_in_ || !options_.logs_in);
  if (may_call && !watch_ && !leaving_) watch_ = call(Watch{}, now);
  if (lease_.id != 0 && !keeping_ && now >= lease_.keep_alive_at) keep_alive(now);
  follow_lease(now);
  step(now);
}

Time Session::next_wake() const {
  if (left_) return kNever;
  Time wake = kNever;
  if (!main_) wake = fresh_ ? std::max(read_at_, not_before_) : not_before_;
  if (!main_) wake = std::min(wake, std::max(campaign_at_, not_before_));
  if (lease_.id != 0 && !keeping_) wake = std::min(wake, lease_.keep_alive_at);
  if (won_ && !doubtful_) wake = std::min(wake, lease_.valid_until);
  return wake;
}

void Session::step(Time now) {
  if (main_ || left_ || now < not_before_) return;
  if (options_.logs_in && !logged_in_) return main_call(LogIn{}, now);
  if (leaving_) {
    if (lease_.id == 0) {
      left_ = true;
    } else {
      main_call(RevokeLease{lease_.id}, now);
    }
    return;
  }
  if (!fresh_ || now >= read_at_) return main_call(ReadAll{}, now);
  if (auto request = next_request(now)) main_call(std::move(*request), now);
}

void Session::resign(Time now) {
  resigned_ = true;
  fresh_ = false;
  advance(now);
}

void Session::leave(Time now) {
  leaving_ = true;
  step(now);
}

void Session::on_term(Term term, Time now) {
  if (term.value > kMostTermOfBackends) return;  // made up
  highest_ = std::max(highest_, term);
  if (!won_ || *won_ >= highest_) return;
  step(now);
}

// ---- replies

void Session::on(CallEnded reply, Time now) {
  const bool failed = std::holds_alternative<CallFailed>(reply.outcome);
  const auto is_reply_to = [&](const std::optional<InFlight>& call) {
    return call && call->number == reply.number;
  };
  if (is_reply_to(watch_)) {
    const InFlight call = *std::exchange(watch_, std::nullopt);
    fresh_ = false;
    // A store that ends every watch at once must not be asked again and again without a pause.
    not_before_ = std::max(not_before_, now + kShortestPause);
    if (failed) on_failure(std::get<CallFailed>(reply.outcome), call.endpoint, now);
  } else if (is_reply_to(keeping_)) {
    const InFlight call = *std::exchange(keeping_, std::nullopt);
    on_keep_alive(std::move(reply.outcome), call, now);
  } else if (is_reply_to(main_)) {
    const InFlight call = *std::exchange(main_, std::nullopt);
    on_main(std::move(reply.outcome), call.endpoint, now);
  }
  advance(now);
}

void Session::on(const ChangeSeen& change, Time now) {
  if (!watch_ || watch_->number != change.number) return;
  fresh_ = false;
  advance(now);
}

void Session::on_main(std::variant<Reply, CallFailed> outcome, std::size_t endpoint, Time now) {
  if (const auto* const failed = std::get_if<CallFailed>(&outcome)) {
    fresh_ = false;  // a write may have been done
    if (leaving_) left_ = true;
    return on_failure(*failed, endpoint, now);
  }
  Reply& reply = std::get<Reply>(outcome);
  if (std::holds_alternative<LoggedIn>(reply)) {
    logged_in_ = true;
  } else if (auto* const all = std::get_if<AllKeys>(&reply)) {
    keys_ = std::move(*all);
    follow_keys(now);
  } else if (std::holds_alternative<Written>(reply)) {
    fresh_ = false;
    campaign_at_ = kNever;
  } else if (const auto* const granted = std::get_if<LeaseGranted>(&reply)) {
    lease_ = {granted->lease, now, now};  // valid after a keep-alive
  } else if (std::holds_alternative<LeaseRevoked>(reply)) {
    lease_ = {};
    left_ = leaving_;
  }
}

void Session::on_failure(const CallFailed& failed, std::size_t endpoint, Time now) {
  switch (failed.fault) {
    case StoreFault::not_logged_in:
      logged_in_ = false;
      return;
    case StoreFault::lease_gone:
      return lose_lease(now);
    case StoreFault::wrong_password:
    case StoreFault::no_right:
      logged_in_ = false;
      not_before_ = now + kPauseAfterRefusal;
      return set_state(StoreState::refused, failed.why);
    case StoreFault::full:
    case StoreFault::rejected:
      not_before_ = now + kLongestPause;
      return set_state(StoreState::away, failed.why);
    case StoreFault::unreachable:
      break;
  }
  set_state(StoreState::away, failed.why);
  if (endpoint != endpoint_) return;  // another call has left it already
  endpoint_ = (endpoint_ + 1) % options_.endpoints;
  not_before_ = now + jitter(random_, kShortestPause, kLongestPause);
}

void Session::set_state(StoreState state, const Status& why) {
  if (state == state_ && why.code() == why_.code()) return;
  state_ = state;
  why_ = why;
  events_.emplace_back(StoreChanged{state, why});
}

// ---- the lease

void Session::keep_alive(Time now) { keeping_ = call(KeepAlive{lease_.id}, now); }

void Session::on_keep_alive(std::variant<Reply, CallFailed> outcome, const InFlight& call,
                            Time now) {
  if (const auto* const failed = std::get_if<CallFailed>(&outcome)) {
    lease_.keep_alive_at = now + jitter(random_, kShortestPause, 2 * kShortestPause);
    return on_failure(*failed, call.endpoint, now);
  }
  const auto* const kept = std::get_if<KeptAlive>(&std::get<Reply>(outcome));
  if (kept == nullptr || kept->time_to_live <= Duration::zero()) return lose_lease(now);
  lease_.valid_until = call.sent + part_of(kept->time_to_live, kValidPart);
  lease_.keep_alive_at = call.sent + kept->time_to_live / 3;
  follow_lease(now);
}

void Session::lose_lease(Time now) {
  lease_ = {};
  fresh_ = false;
  follow_lease(now);
}

void Session::follow_lease(Time now) {
  if (!won_) return;
  const bool doubtful = lease_.id == 0 || now >= lease_.valid_until;
  if (doubtful == doubtful_) return;
  doubtful_ = doubtful;
  events_.emplace_back(Doubtful{doubtful});
}

// ---- the keys

bool Session::leads_by_key() const {
  const auto leader = member_in(keys_, kLeaderKey);
  return leader && leader->incarnation == options_.incarnation;
}

std::optional<MemberRecord> Session::leader_by_key() const {
  const StoredValue* const stored = find(keys_, kLeaderKey);
  std::optional<MemberRecord> leader = member_in(keys_, kLeaderKey);
  if (!leader || leader->incarnation == options_.incarnation) return leader;
  const StoredValue* const registered = find(keys_, key_of(leader->member));
  const auto member = member_in(keys_, key_of(leader->member));
  const bool counts = stored->lease != 0 && registered != nullptr && registered->lease != 0 &&
                      member && member->incarnation == leader->incarnation;
  return counts ? leader : std::nullopt;
}

Term Session::term_by_key() const {
  const auto cluster = cluster_in(keys_);
  const StoredValue* const leader = find(keys_, kLeaderKey);
  if (!cluster || leader == nullptr) return {};
  return {cluster->base + static_cast<std::uint64_t>(std::max<Revision>(leader->created, 0))};
}

void Session::follow_keys(Time now) {
  const auto cluster = cluster_in(keys_);
  if (cluster && cluster->name != options_.cluster) {
    return set_state(StoreState::conflict,
                     {StatusCode::invalid,
                      fmt::format("the prefix belongs to the cluster {}, and this frontend is of "
                                  "{}: give each cluster a prefix of its own",
                                  cluster->name, options_.cluster)});
  }
  const auto namesake = member_in(keys_, key_of(options_.self));
  if (namesake && namesake->incarnation != options_.incarnation &&
      namesake->member.address != options_.self.address) {
    set_state(StoreState::conflict,
              {StatusCode::invalid,
               fmt::format("the frontend at {} is a member named {}, too; this one is at {}: give "
                           "each a name of its own",
                           namesake->member.address, options_.self.name, options_.self.address)});
  } else {
    set_state(StoreState::here, {});
  }

  std::vector<Member> members;
  for (const auto& [key, stored] : keys_.values) {
    if (!key.starts_with(kMembersPrefix)) continue;
    if (const auto record = member_in(keys_, key)) members.push_back(record->member);
  }
  if (members != members_) {
    members_ = members;
    events_.emplace_back(MembersChanged{std::move(members)});
  }

  const Term term = term_by_key();
  if (leads_by_key()) {
    if (term < highest_ || (won_ && term <= *won_)) return;  // `base` is raised first
    highest_ = term;
    won_ = term;
    leader_.reset();
    events_.emplace_back(Won{term});
    follow_lease(now);
    return;
  }
  const auto record = leader_by_key();
  if (record) highest_ = std::max(highest_, term);
  // The key went with the lease, and nobody else was elected yet: this member leads on.
  if (won_ && !record && !resigned_) return;
  const Member leader = record ? record->member : Member{};
  const Term leads_in = record ? term : Term{};
  if (!won_ && leader_ == leader && leader_term_ == leads_in) return;
  won_.reset();
  doubtful_ = false;
  leader_ = leader;
  leader_term_ = leads_in;
  events_.emplace_back(Lost{leader, leads_in});
}

std::optional<Request> Session::next_request(Time now) {
  std::optional<Request> request;
  const bool campaigns = [&] {
    if (state_ != StoreState::here) return false;
    if ((request = request_for_cluster())) return false;
    if (lease_.id == 0) {
      request = GrantLease{options_.lease};
      return false;
    }
    if (now >= lease_.valid_until) return false;  // the keep-alive comes first
    request = request_for_member();
    return !request.has_value();
  }();
  if (campaigns) return request_for_leadership(now);
  campaign_at_ = kNever;
  return request;
}

std::optional<Request> Session::request_for_cluster() const {
  const StoredValue* const stored = find(keys_, kClusterKey);
  // Absent in a new cluster, and after the store has lost its data.
  const bool absent = !cluster_in(keys_);
  const bool term_too_low = leads_by_key() && term_by_key() < highest_;
  if (!absent && !term_too_low) return std::nullopt;
  const std::string key(kClusterKey);
  // As low as the terms allow, so that no fault of the store makes the base grow beyond its limit:
  // the leadership in force, or else the next one, exceeds the highest term.
  const StoredValue* const leader = find(keys_, kLeaderKey);
  const auto revision = static_cast<std::uint64_t>(
      std::max<Revision>(leader == nullptr ? keys_.revision : leader->created - 1, 0));
  const std::uint64_t base = highest_.value > revision ? highest_.value - revision : 0;
  return Write{{{key, stored == nullptr ? 0 : stored->changed}},
               {{key, to_json(ClusterRecord{options_.cluster, std::min(base, kMostBase)}), false}}};
}

std::optional<Request> Session::request_for_member() const {
  const std::string key = key_of(options_.self);
  const StoredValue* const stored = find(keys_, key);
  const auto record = member_in(keys_, key);
  if (record && record->incarnation == options_.incarnation && stored->lease == lease_.id)
    return std::nullopt;
  return Write{{{key, stored == nullptr ? 0 : stored->changed}},
               {{key, to_json(MemberRecord{options_.self, options_.incarnation}), true}},
               lease_.id};
}

std::optional<Request> Session::request_for_leadership(Time now) {
  const std::string key(kLeaderKey);
  const StoredValue* const stored = find(keys_, key);
  const auto record = leader_by_key();
  const std::string own = to_json(MemberRecord{options_.self, options_.incarnation});
  if (stored == nullptr) {
    if (resigned_) return std::nullopt;
    if (campaign_at_ == kNever) campaign_at_ = now + jitter(random_, {}, kCampaignJitter);
    if (now < campaign_at_) return std::nullopt;
    return Write{{{key, 0}}, {{key, own, true}}, lease_.id};
  }
  campaign_at_ = kNever;
  if (record && record->incarnation == options_.incarnation) {
    if (resigned_) return Write{{{key, stored->changed}}, {{key, std::nullopt, false}}};
    if (stored->lease == lease_.id) return std::nullopt;
    return Write{{{key, stored->changed}}, {{key, own, true}}, lease_.id};
  }
  // Nothing of a member; or of an earlier process of this one, which is gone: its address is this
  // one's now.
  if (!record || same_place(record->member, options_.self))
    return Write{{{key, stored->changed}}, {{key, std::nullopt, false}}};
  return std::nullopt;
}

}  // namespace gpulet::cluster
