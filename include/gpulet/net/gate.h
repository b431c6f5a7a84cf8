// Gate: whether a call may be made, asked by the endpoints of all protocols: the right and the
// model of its token, then the limits of that token and of the address that it comes from. Holds
// the tokens that are in force; they may be replaced while calls are under way.
//
// tokens() may be called on any thread; everything else on the thread of the executor that the
// endpoints share.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/audit.h"
#include "gpulet/net/peer_identity.h"
#include "gpulet/net/quota.h"
#include "gpulet/net/tokens.h"

namespace gpulet::net {

// What a call needs, and what it is called where it is told of.
struct CallNeeds {
  Right right = Right::nothing;
  std::string action{};  // "infer", "model_load", ...
  std::string model{};   // that it is about; empty: no one model
  std::string target{};  // of another kind, such as a region; empty: the model
};

// The place of a call among what its client has under way; it ends with the last copy.
using Permit = std::shared_ptr<const void>;

struct Admission {
  Status status;           // unauthenticated, forbidden or limited
  Duration retry_after{};  // of what is limited: when asking again may help
  Permit permit{};         // null where no limit counts it
};

// What became of the inferences of one token's name.
struct ClientCounters {
  std::uint64_t requests = 0;  // rows that were let through
  std::uint64_t denied = 0;    // calls without the right
  std::uint64_t limited_requests = 0;
  std::uint64_t limited_device_time = 0;
  std::uint64_t limited_under_way = 0;
  double device_s = 0;  // as planned, of the rows that were let through
};
// By the token's name; empty: no known token.
using CountersByClient = std::map<std::string, ClientCounters, std::less<>>;

class Gate {
 public:
  using DeviceTime = std::function<Duration(std::string_view model)>;

  explicit Gate(std::shared_ptr<const Tokens> tokens = std::make_shared<const Tokens>(),
                const config::ClientLimits& per_address = {});
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Of a whole device, for one request of the model, as planned; zero: not known.
  void set_device_time(DeviceTime device_time) { device_time_ = std::move(device_time); }

  // Never null.
  [[nodiscard]] std::shared_ptr<const Tokens> tokens() const;

  // Whether anything at all is asked of inferences; where not, the calls below are not needed.
  [[nodiscard]] bool guards_inference() const;
  // Whether addresses of peers matter to it.
  [[nodiscard]] bool limits_addresses() const { return per_address_.any(); }

  // Others from now on. Identities of peers that were made with those before stay usable.
  void replace(std::shared_ptr<const Tokens> tokens);
  // Whether the token that the peer showed was known once and is not any more.
  [[nodiscard]] bool revoked(const PeerIdentity& peer) const;

  // As Tokens::check, with the tokens that are in force now: the peer's may have been read before.
  // What is refused is told of, as by refuse().
  [[nodiscard]] Status check(const CallNeeds& needs, PeerIdentity& peer);

  // ---- what is told of: to whom it may concern, set before the first call
  using OnAudit = std::function<void(const AuditRecord&)>;
  void set_audit(OnAudit called, OnAudit refused);
  // A call was refused for its token.
  void refuse(const CallNeeds& needs, const PeerIdentity& peer, const Status& why);
  // A call that needed the right to administer was made.
  void called(const CallNeeds& needs, const PeerIdentity& peer, const Status& result) const;

  // Before the payload of an inference is taken in: checks the right, and pays for one request.
  [[nodiscard]] Admission announce(PeerIdentity& peer, std::string_view model);
  // Once it is known to have so many rows: pays for those that announce() has not paid for.
  [[nodiscard]] Admission enter(PeerIdentity& peer, std::string_view model, std::size_t rows);

  [[nodiscard]] const CountersByClient& counters() const { return counters_; }

 private:
  // Up to two: the token's and the address's.
  struct Quotas {
    std::shared_ptr<Quota> token;
    std::shared_ptr<Quota> address;
  };
  // A limit applies to its token or its address.
  [[nodiscard]] bool limits(const PeerIdentity& peer) const;
  [[nodiscard]] Quotas quotas_of(const PeerIdentity& peer, Time now);
  [[nodiscard]] Admission admit(const PeerIdentity& peer, const Quotas& quotas,
                                const QuotaUse& pays, std::uint32_t enters, Time now);
  [[nodiscard]] ClientCounters& counters_of(const PeerIdentity& peer);
  void count(const PeerIdentity& peer, QuotaLimit reached);
  [[nodiscard]] Duration device_time(std::string_view model) const;

  const config::ClientLimits per_address_;
  DeviceTime device_time_;
  OnAudit called_;
  OnAudit refused_;
  QuotaBook by_token_;
  QuotaBook by_address_;
  CountersByClient counters_;

  mutable std::mutex mutex_;  // of tokens_
  std::shared_ptr<const Tokens> tokens_;
  std::shared_ptr<const Tokens> current_;  // the same, for the executor's thread
};

// What the limits of addresses are counted by: the address, of IPv6 its /64 network, which one
// subscriber has to itself.
[[nodiscard]] std::string quota_key_of(const std::string& address);

}  // namespace gpulet::net
