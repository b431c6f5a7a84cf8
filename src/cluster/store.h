// The store of a cluster, as its members use it: a few small keys with revisions, of which some go
// with the lease of the member that wrote them. Calls and replies as values, so that one set of
// decisions (cluster/session.h) works with etcd and with a fake. Any thread.
//
// Revisions: the store counts its writes. A key has the revision of its creation and that of its
// last change; 0 stands for a key that is not there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"

namespace gpulet::cluster {

using Revision = std::int64_t;
using LeaseId = std::int64_t;  // 0: none

struct StoredValue {
  std::string value;
  Revision created = 0;
  Revision changed = 0;
  LeaseId lease = 0;

  friend bool operator==(const StoredValue&, const StoredValue&) = default;
};

// ---- calls. `number` is the caller's and returns with the reply.

// Proves who the caller is. The client keeps the token and adds it to later calls.
struct LogIn {};
// All keys below the client's prefix.
struct ReadAll {};
// If every condition holds, does all writes in one step.
struct Write {
  struct Condition {
    std::string key;
    Revision changed = 0;  // 0: the key is not there
  };
  struct Put {
    std::string key;
    std::optional<std::string> value;  // empty: delete the key
    bool with_lease = false;
  };
  std::vector<Condition> conditions;
  std::vector<Put> puts;
  LeaseId lease = 0;  // of the puts with a lease
};
struct GrantLease {
  Duration time_to_live{};
};
struct KeepAlive {
  LeaseId lease = 0;
};
struct RevokeLease {
  LeaseId lease = 0;
};
// Asks for a ChangeSeen whenever a key below the prefix may have changed, until the stream breaks.
struct Watch {};

using Request = std::variant<LogIn, ReadAll, Write, GrantLease, KeepAlive, RevokeLease, Watch>;
struct Call {
  std::uint64_t number = 0;
  std::size_t endpoint = 0;  // index of the store's endpoints
  Request request;
};

// ---- replies

struct LoggedIn {};
struct AllKeys {
  Revision revision = 0;                      // of the store
  std::map<std::string, StoredValue> values;  // by key, without the prefix
};
struct Written {
  bool conditions_held = false;
};
struct LeaseGranted {
  LeaseId lease = 0;
  Duration time_to_live{};
};
struct KeptAlive {
  Duration time_to_live{};  // zero: the lease is gone
};
struct LeaseRevoked {};
struct WatchEnded {};

using Reply =
    std::variant<LoggedIn, AllKeys, Written, LeaseGranted, KeptAlive, LeaseRevoked, WatchEnded>;

// Why a call failed. Decisions look at this, never at the text.
enum class StoreFault : std::uint8_t {
  unreachable,  // no connection, no leader, or no reply in time; a write may have been done
  not_logged_in,
  wrong_password,
  no_right,  // the user may not use the prefix
  full,      // the store takes no writes
  lease_gone,
  rejected,  // the store refused the call itself; a bug
};
struct CallFailed {
  StoreFault fault{};
  Status why;
};

struct CallEnded {
  std::uint64_t number = 0;
  std::variant<Reply, CallFailed> outcome;
};
// The Watch of that number saw a change.
struct ChangeSeen {
  std::uint64_t number = 0;
};

}  // namespace gpulet::cluster
