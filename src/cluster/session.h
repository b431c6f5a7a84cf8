// Session: the decisions of one member of a cluster about its store: when to log in, register, keep
// its lease, take part in the election, and what follows from the keys. Calls to the store go out
// as values, replies come in as values; time and randomness are arguments. Pure; one thread.
//
// Keys, as JSON (cluster/records.h):
//   cluster       name, and `base`, which is added to the revision of the leadership
//   members/NAME  a member, with its lease
//   leader        the member that leads, with its lease
//
// A key `leader` without a lease, or of a process that is no member, is nobody's: it is deleted.
//
// The leader is the member that created the key `leader`. Its term is `base` plus the revision of
// that creation, so no two leaderships have one term as long as the store keeps its data. If the
// store loses its data, revisions begin anew: a member that knows a higher term (its own, or one
// that a backend accepted) raises `base` before it leads.
//
// A lease counts as valid until 0.8 times its time to live after the last keep-alive that succeeded
// was sent. After that, a leader is in doubt (Doubtful). To lose the lease ends nothing by itself:
// the member registers again, and leads on if nobody else was elected.
//
// All keys are read as a whole, after every change that a watch sees and at least every second. So
// neither lost nor repeated changes matter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/store.h"
#include "gpulet/base/random.h"
#include "gpulet/base/time.h"
#include "gpulet/cluster/membership.h"

namespace gpulet::cluster {

struct MemberRecord;

struct SessionOptions {
  std::string cluster;  // its name
  Member self;
  std::string incarnation;  // differs in every start of the process
  std::size_t endpoints = 1;
  bool logs_in = false;
  Duration lease = std::chrono::seconds(5);
  std::uint64_t seed = 1;
};

class Session {
 public:
  explicit Session(SessionOptions options);

  void on(CallEnded reply, Time now);
  void on(const ChangeSeen& change, Time now);
  // REQUIRES: called once to begin, and when next_wake() has come.
  void advance(Time now);
  [[nodiscard]] Time next_wake() const;
  void on_term(Term term, Time now);
  // Gives up the leadership for good, and stays a member.
  void resign(Time now);
  // Gives up the lease. left() is true when that is done or has failed.
  void leave(Time now);
  [[nodiscard]] bool left() const { return left_; }

  // The pending calls and events, in order. Each is returned once.
  [[nodiscard]] std::vector<Call> take_calls() { return std::exchange(calls_, {}); }
  [[nodiscard]] std::vector<MembershipEvent> take_events() { return std::exchange(events_, {}); }

 private:
  struct Lease {
    LeaseId id = 0;  // 0: none
    Time valid_until{};
    Time keep_alive_at = kNever;
  };
  struct InFlight {
    std::uint64_t number = 0;
    std::size_t endpoint = 0;
    Time sent{};
  };

  [[nodiscard]] InFlight call(Request request, Time now);
  // The main line: one call at a time.
  void step(Time now);
  void main_call(Request request, Time now);
  // The next write that the keys ask for. Empty: none.
  [[nodiscard]] std::optional<Request> next_request(Time now);
  [[nodiscard]] std::optional<Request> request_for_cluster() const;
  [[nodiscard]] std::optional<Request> request_for_member() const;
  [[nodiscard]] std::optional<Request> request_for_leadership(Time now);
  [[nodiscard]] bool leads_by_key() const;
  [[nodiscard]] Term term_by_key() const;
  // What the key `leader` says, if it counts: it goes with the lease of the member that it names.
  [[nodiscard]] std::optional<MemberRecord> leader_by_key() const;

  void on_main(std::variant<Reply, CallFailed> outcome, std::size_t endpoint, Time now);
  void on_keep_alive(std::variant<Reply, CallFailed> outcome, const InFlight& call, Time now);
  void on_failure(const CallFailed& failed, std::size_t endpoint, Time now);
  void keep_alive(Time now);
  void lose_lease(Time now);
  void follow_keys(Time now);
  void follow_lease(Time now);
  void set_state(StoreState state, const Status& why);

  const SessionOptions options_;
  Random random_;
  std::size_t endpoint_ = 0;
  std::uint64_t last_call_ = 0;
  std::vector<Call> calls_;
  std::vector<MembershipEvent> events_;

  bool logged_in_ = false;
  std::optional<InFlight> main_;  // the main line's call
  bool fresh_ = false;            // keys_ were read after the last write and change
  Time read_at_{};                // when to read again, at the latest
  Time not_before_{};             // the pause after a failure
  std::optional<InFlight> watch_;
  std::optional<InFlight> keeping_;
  Lease lease_;
  AllKeys keys_;

  StoreState state_ = StoreState::connecting;
  Status why_;
  Term highest_{};  // that this member knows
  std::optional<Term> won_;
  bool doubtful_ = false;
  std::optional<Member> leader_;  // as last told
  Term leader_term_{};            // as last told
  std::vector<Member> members_;
  Time campaign_at_ = kNever;
  bool resigned_ = false;
  bool leaving_ = false;
  bool left_ = false;
};

}  // namespace gpulet::cluster
