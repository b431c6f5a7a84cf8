// Gate: decides for all protocols whether a call is admitted: by the right and the models of its
// token, then by the limits of the token and of the address. Holds the tokens in force, which can
// be replaced at any time.
//
// tokens() may be called on any thread; all else on the thread of the endpoints' executor.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/tokens.h"

namespace gpulet::net {

// A call that needs a right, and its result, for the audit log. Value.
struct AuditRecord {
  PeerIdentity peer{};   // without a protocol: the daemon itself
  std::string action{};  // "model_load", "trace", ...
  std::string target{};  // the model or the region; empty: none
  Status result{};
};

// ---- quotas
//
// Rates are token buckets that hold one second's worth, at least one request. A call larger than
// the bucket is admitted when the bucket is full and leaves a debt. Within any t seconds at most (1
// + t) times the rate passes, plus the excess of the largest call over the bucket. Pure: the time
// is an argument and never decreases. One thread at a time.

class TokenBucket {
 public:
  // Starts full. REQUIRES: rate and burst above 0.
  TokenBucket(double rate_per_s, double burst, Time now);

  // The time until `amount` passes; zero: now.
  [[nodiscard]] Duration wait_for(double amount, Time now);
  // Takes `amount`. The level may become negative.
  void take(double amount, Time now);

 private:
  void fill(Time now);

  double rate_per_s_;
  double burst_;
  double level_;
  Time filled_;
};

enum class QuotaLimit : std::uint8_t { none, requests, device_time, in_flight };
// The limit's key in the configuration: "requests_per_s", ...
[[nodiscard]] std::string_view to_string(QuotaLimit limit);

struct QuotaVerdict {
  QuotaLimit reached = QuotaLimit::none;
  Duration retry_after{};  // where a limit was reached

  [[nodiscard]] bool admitted() const { return reached == QuotaLimit::none; }
};

// The cost of a call.
struct QuotaUse {
  std::uint32_t requests = 1;  // rows
  Duration device_time{};      // of all rows
};

// One client's use of its limits (config::ClientLimits).
class Quota {
 public:
  Quota(const config::ClientLimits& limits, Time now);

  // Whether the rates admit the call now, and whether `requests` more may be in flight.
  [[nodiscard]] QuotaVerdict check_rates(const QuotaUse& use, Time now);
  [[nodiscard]] QuotaVerdict check_in_flight(std::uint32_t requests) const;
  // Charges the call, checked or not.
  void pay(const QuotaUse& use, Time now);
  void enter(std::uint32_t requests) { in_flight_ += requests; }
  // REQUIRES: the requests entered before.
  void leave(std::uint32_t requests) { in_flight_ -= requests; }

  // Replaces the limits. Requests in flight stay counted.
  void change(const config::ClientLimits& limits, Time now);
  [[nodiscard]] std::uint64_t in_flight() const { return in_flight_; }

 private:
  config::ClientLimits limits_;
  TokenBucket requests_;
  TokenBucket device_ms_;
  std::atomic<std::uint64_t> in_flight_ = 0;  // a call may end on another thread
};

// The quotas of a bounded number of clients.
class QuotaBook {
 public:
  // Beyond `most` clients, the least recently used one without requests in flight is forgotten.
  explicit QuotaBook(std::size_t most = 16384) : most_(most) {}

  // The client's quota, created where there is none.
  [[nodiscard]] std::shared_ptr<Quota> of(std::string_view client,
                                          const config::ClientLimits& limits, Time now);
  [[nodiscard]] std::size_t size() const { return accounts_.size(); }

 private:
  struct Account {
    std::shared_ptr<Quota> quota;
    std::list<std::string>::iterator used;
  };
  void evict_one();

  std::size_t most_;
  std::unordered_map<std::string, Account> accounts_;
  std::list<std::string> by_use_;  // most recently used first
};

// ---- the gate

// The requirements of a call, and its description for the audit log.
struct CallNeeds {
  Right right = Right::nothing;
  std::string action{};  // "infer", "model_load", ...
  std::string model{};   // the model concerned; empty: no single model
  std::string target{};  // another target, such as a region; empty: the model
};

// Counts a call as in flight until its last copy is destroyed.
using Permit = std::shared_ptr<const void>;

struct Admission {
  Status status;           // unauthenticated, forbidden or limited
  Duration retry_after{};  // of a limited call
  Permit permit{};         // null where no limit applies
};

// Inference counters of one token name.
struct ClientCounters {
  std::uint64_t requests = 0;  // admitted rows
  std::uint64_t denied = 0;    // calls without the right
  std::uint64_t limited_requests = 0;
  std::uint64_t limited_device_time = 0;
  std::uint64_t limited_in_flight = 0;
  double device_s = 0;  // planned device time of the admitted rows
};
// By token name; empty: no known token.
using CountersByClient = std::map<std::string, ClientCounters, std::less<>>;

class Gate {
 public:
  using DeviceTime = std::function<Duration(std::string_view model)>;

  explicit Gate(std::shared_ptr<const Tokens> tokens = std::make_shared<const Tokens>(),
                const config::ClientLimits& per_address = {});
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // The planned time of one request on a whole device; zero: unknown.
  void set_device_time(DeviceTime device_time) { device_time_ = std::move(device_time); }

  // Never null.
  [[nodiscard]] std::shared_ptr<const Tokens> tokens() const;

  // False if inferences need neither announce() nor enter().
  [[nodiscard]] bool guards_inference() const;
  // True if decisions depend on peer addresses.
  [[nodiscard]] bool limits_addresses() const { return per_address_.any(); }

  // Replaces the tokens. Identities made with the previous ones stay valid.
  void replace(std::shared_ptr<const Tokens> tokens);
  // True if the peer's token was known once and has been removed.
  [[nodiscard]] bool revoked(const PeerIdentity& peer) const;

  // As Tokens::check with the tokens in force, maybe newer than the peer's; refuse()s if it fails.
  [[nodiscard]] Status check(const CallNeeds& needs, PeerIdentity& peer);

  using OnAudit = std::function<void(const AuditRecord&)>;
  // Set before the first call.
  void set_audit(OnAudit called, OnAudit refused);
  // Reports a call that was refused for its token.
  void refuse(const CallNeeds& needs, const PeerIdentity& peer, const Status& why);
  // Reports the result of an admin call.
  void called(const CallNeeds& needs, const PeerIdentity& peer, const Status& result) const;

  // Before the payload of an inference is received: checks the right and charges one request.
  [[nodiscard]] Admission announce(PeerIdentity& peer, std::string_view model);
  // Once the number of rows is known: charges the requests that announce() has not charged.
  [[nodiscard]] Admission enter(PeerIdentity& peer, std::string_view model, std::size_t rows);

  [[nodiscard]] const CountersByClient& counters() const { return counters_; }

 private:
  // Null where no limit applies.
  struct Quotas {
    std::shared_ptr<Quota> token;
    std::shared_ptr<Quota> address;
  };
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

  mutable std::mutex mutex_;  // guards tokens_
  std::shared_ptr<const Tokens> tokens_;
  std::shared_ptr<const Tokens> current_;  // the same, for the executor's thread
};

}  // namespace gpulet::net
