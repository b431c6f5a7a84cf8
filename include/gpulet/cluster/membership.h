// Membership: one frontend's place in its cluster: who the members are, and who leads.
//
// Every member of a cluster runs one. It registers the member, takes part in the election of the
// leader, and tells of changes as MembershipEvents. What it says may be outdated: a frontend acts
// on it, and backends decide whom they obey (node/fence.h). Single-strand.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/core/ids.h"

namespace gpulet::cluster {

struct Member {
  std::string name;
  std::string address;  // for clients: HOST:PORT
  std::string peer{};   // for other frontends: HOST:PORT; empty: it takes no requests from them
  // Drawn at its start. Only who can read the store knows it, and so it proves to other frontends
  // who connects to them. Empty: of a version without it. Never in a log, status or message.
  std::string secret{};

  friend bool operator==(const Member&, const Member&) = default;
};

// The state of the cluster's store, as this member sees it.
enum class StoreState : std::uint8_t {
  connecting,  // nothing was heard from it yet
  here,
  away,      // it cannot be reached; what is known stays in force
  refused,   // wrong password, or no right to the prefix
  conflict,  // the prefix belongs to another cluster, or another process has this member's name
};
[[nodiscard]] std::string_view to_string(StoreState state);

// This member leads from now on. A further one with a higher term may follow.
struct Won {
  Term term;
};
// This member does not lead. `leader` is empty while nobody does. A further one follows when the
// leader or its term changes.
struct Lost {
  Member leader;
  Term term{};  // of the leader
};
// This member leads, but cannot tell whether another one has been elected: it should start nothing
// that can wait. Ends with a Doubtful{false}, or with a Lost.
struct Doubtful {
  bool doubtful = false;
};
struct StoreChanged {
  StoreState state{};
  Status why;  // ok while it is here
};
// The members that are registered, sorted by name.
struct MembersChanged {
  std::vector<Member> members;
};
using MembershipEvent = std::variant<Won, Lost, Doubtful, StoreChanged, MembersChanged>;

class Membership {
 public:
  virtual ~Membership() = default;

  // Begins to take part. Events arrive later, never from within a call.
  virtual void start(std::function<void(const MembershipEvent&)> on_event) = 0;
  // A backend has accepted this term. If this member leads, it needs a higher one.
  virtual void on_term(Term term) = 0;
  // Gives up the leadership and does not take it again. Events go on.
  virtual void resign() = 0;
  // Gives up the leadership and leaves the cluster, then calls `done`: within two seconds, even if
  // the store is away.
  virtual void leave(std::function<void()> done) = 0;
};

}  // namespace gpulet::cluster
