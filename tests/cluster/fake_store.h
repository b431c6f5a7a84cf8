// A store of a cluster in memory, with its own clock for leases. It can be away, lose replies, and
// lose its data. Members are Sessions whose calls it answers after a delay.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/session.h"

namespace gpulet::cluster::testing {

class FakeStore {
 public:
  bool away = false;          // no call gets a reply but `unreachable`
  bool hides_writes = false;  // writes are done, their replies are lost

  void expire(Time now) {
    std::erase_if(leases_, [&](const auto& lease) {
      if (lease.second.ends > now) return false;
      drop_keys_of(lease.first);
      return true;
    });
  }
  void lose_data() {
    keys_.clear();
    leases_.clear();
    revision_ = 1;
  }
  void lose_leases() {
    for (const auto& [id, lease] : leases_) drop_keys_of(id);
    leases_.clear();
  }
  // As if another program wrote it.
  void put(const std::string& key, const std::string& value) { write_key(key, value, 0); }
  [[nodiscard]] const std::map<std::string, StoredValue>& keys() const { return keys_; }
  [[nodiscard]] Revision revision() const { return revision_; }

  [[nodiscard]] std::variant<Reply, CallFailed> answer(const Request& request, Time now) {
    if (away) return unreachable();
    const Revision before = revision_;
    auto reply = std::visit([&](const auto& one) { return do_call(one, now); }, request);
    if (hides_writes && revision_ != before) return unreachable();
    return reply;
  }
  static CallFailed unreachable() {
    return {StoreFault::unreachable, {StatusCode::unavailable, "the test says so"}};
  }

 private:
  struct Lease {
    Duration time_to_live{};
    Time ends{};
  };

  void write_key(const std::string& key, const std::string& value, LeaseId lease) {
    StoredValue& stored = keys_[key];
    stored.changed = ++revision_;
    if (stored.created == 0) stored.created = revision_;
    stored.value = value;
    stored.lease = lease;
  }
  void drop_keys_of(LeaseId lease) {
    const auto dropped =
        std::erase_if(keys_, [lease](const auto& key) { return key.second.lease == lease; });
    if (dropped > 0) ++revision_;
  }

  std::variant<Reply, CallFailed> do_call(const LogIn&, Time) { return Reply(LoggedIn{}); }
  std::variant<Reply, CallFailed> do_call(const ReadAll&, Time) {
    return Reply(AllKeys{revision_, keys_});
  }
  std::variant<Reply, CallFailed> do_call(const Write& write, Time) {
    for (const Write::Condition& one : write.conditions) {
      const auto found = keys_.find(one.key);
      if ((found == keys_.end() ? 0 : found->second.changed) != one.changed)
        return Reply(Written{false});
    }
    for (const Write::Put& one : write.puts) {
      if (one.with_lease && !leases_.contains(write.lease))
        return CallFailed{StoreFault::lease_gone, {StatusCode::not_found, "no such lease"}};
      if (one.value) {
        write_key(one.key, *one.value, one.with_lease ? write.lease : 0);
      } else if (keys_.erase(one.key) > 0) {
        ++revision_;
      }
    }
    return Reply(Written{true});
  }
  std::variant<Reply, CallFailed> do_call(const GrantLease& asked, Time now) {
    leases_[++last_lease_] = {asked.time_to_live, now + asked.time_to_live};
    return Reply(LeaseGranted{last_lease_, asked.time_to_live});
  }
  std::variant<Reply, CallFailed> do_call(const KeepAlive& asked, Time now) {
    const auto found = leases_.find(asked.lease);
    if (found == leases_.end()) return Reply(KeptAlive{});
    found->second.ends = now + found->second.time_to_live;
    return Reply(KeptAlive{found->second.time_to_live});
  }
  std::variant<Reply, CallFailed> do_call(const RevokeLease& asked, Time) {
    if (leases_.erase(asked.lease) > 0) drop_keys_of(asked.lease);
    return Reply(LeaseRevoked{});
  }
  std::variant<Reply, CallFailed> do_call(const Watch&, Time) { return Reply(WatchEnded{}); }

  std::map<std::string, StoredValue> keys_;
  std::map<LeaseId, Lease> leases_;
  LeaseId last_lease_ = 0;
  Revision revision_ = 1;
};

// Members on one FakeStore, in virtual time.
class FakeCluster {
 public:
  struct MemberState {
    std::unique_ptr<Session> session;  // null: killed
    bool paused = false;
    bool cut = false;  // its calls get no reply but `unreachable`
    std::optional<Term> leads;
    bool doubtful = false;
    Member leader;  // if it does not lead
    Term leader_term{};
    StoreState store = StoreState::connecting;
    std::vector<Member> members;
    std::vector<Term> won;                        // in its life
    std::map<std::uint64_t, Revision> watches{};  // with the revision that each has seen
  };
  static constexpr Duration kLease = std::chrono::seconds(2);
  static constexpr Duration kLatency = std::chrono::milliseconds(5);

  FakeStore store;

  // Starts the member, again under another incarnation if it ran before.
  void start(const std::string& name, std::string address = {}, std::string cluster = "test") {
    SessionOptions options;
    options.cluster = std::move(cluster);
    options.self = {name, address.empty() ? name + ":7000" : std::move(address)};
    options.incarnation = name + std::to_string(++starts_);
    options.lease = kLease;
    options.seed = static_cast<std::uint64_t>(starts_);
    MemberState& member = members_[name] = {};
    member.session = std::make_unique<Session>(options);
    member.session->advance(now_);
  }
  void kill(const std::string& name) { members_.at(name) = {}; }
  MemberState& at(const std::string& name) { return members_.at(name); }
  [[nodiscard]] Time now() const { return now_; }

  // The members that believe that they lead.
  [[nodiscard]] std::vector<std::string> leaders() const {
    std::vector<std::string> found;
    for (const auto& [name, member] : members_) {
      if (member.leads) found.push_back(name);
    }
    return found;
  }

  void pass(Duration duration) {
    const Time end = now_ + duration;
    while (now_ < end) {
      now_ += kLatency;
      store.expire(now_);
      for (auto& [name, member] : members_) step(member);
    }
  }

 private:
  void step(MemberState& member) {
    if (member.session == nullptr || member.paused) return;
    Session& session = *member.session;
    // The replies to the calls of the last step.
    for (const Call& call : session.take_calls()) {
      const bool unreachable = member.cut || store.away;
      if (std::holds_alternative<Watch>(call.request) && !unreachable) {
        member.watches[call.number] = 0;
        continue;
      }
      session.on(CallEnded{call.number,
                           member.cut ? std::variant<Reply, CallFailed>(FakeStore::unreachable())
                                      : store.answer(call.request, now_)},
                 now_);
    }
    const auto watches = member.watches;
    for (const auto& [number, seen] : watches) {
      if (member.cut || store.away) {
        member.watches.erase(number);
        session.on(CallEnded{number, FakeStore::unreachable()}, now_);
      } else if (seen != store.revision()) {
        member.watches[number] = store.revision();
        session.on(ChangeSeen{number}, now_);
      }
    }
    if (now_ >= session.next_wake()) session.advance(now_);
    for (const MembershipEvent& event : session.take_events()) take(member, event);
  }

  static void take(MemberState& member, const MembershipEvent& event) {
    if (const auto* const won = std::get_if<Won>(&event)) {
      member.leads = won->term;
      member.won.push_back(won->term);
    } else if (const auto* const lost = std::get_if<Lost>(&event)) {
      member.leads.reset();
      member.leader = lost->leader;
      member.leader_term = lost->term;
      member.doubtful = false;
    } else if (const auto* const doubt = std::get_if<Doubtful>(&event)) {
      member.doubtful = doubt->doubtful;
    } else if (const auto* const changed = std::get_if<StoreChanged>(&event)) {
      member.store = changed->state;
    } else if (const auto* const members = std::get_if<MembersChanged>(&event)) {
      member.members = members->members;
    }
  }

  Time now_{std::chrono::hours(1)};
  std::map<std::string, MemberState> members_;
  int starts_ = 0;
};

}  // namespace gpulet::cluster::testing
