// Gate: decides for all protocols whether a call is admitted: by the right and the models of its
// token, then by the limits of the token and of the address. Holds the tokens in force, which can
// be replaced at any time.
//
// Any thread, except that the callbacks are set before the first call. A mutex guards the tokens,
// the limits and the counters; it is held for look-ups and arithmetic only, never during a
// callback. A caller's identity belongs to the thread of its connection.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "gpulet/access/tokens.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/daemon_config.h"

namespace gpulet::access {

// A call that needs a right, and its result, for the audit log. Value.
struct AuditRecord {
  PeerIdentity peer{};   // without a protocol: the daemon itself
  std::string action{};  // "model_load", "trace", ...
  std::string target{};  // the model or the region; empty: none
  Status result{};
};

// The requirements of a call, and its description for the audit log.
struct CallNeeds {
  Right right = Right::nothing;
  std::string action{};  // "infer", "model_load", ...
  std::string model{};   // the model concerned; empty: no single model
  std::string target{};  // another target, such as a region; empty: the model
};

// Counts a call as in flight until its last copy is destroyed.
using Permit = std::shared_ptr<const void>;

// Whether a caller may make its call now. Value.
struct Access {
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
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // The planned time of one request on a whole device; zero: unknown. Called on any thread.
  void set_device_time(DeviceTime device_time) { device_time_ = std::move(device_time); }

  // Never null.
  [[nodiscard]] std::shared_ptr<const Tokens> tokens() const;

  // False if inferences need neither announce() nor enter().
  [[nodiscard]] bool guards_inference() const;
  // True if decisions depend on peer addresses.
  [[nodiscard]] bool limits_addresses() const;

  // Replaces the tokens. Identities made with the previous ones stay valid.
  void replace(std::shared_ptr<const Tokens> tokens);
  // True if the peer's token was known once and has been removed.
  [[nodiscard]] bool revoked(const PeerIdentity& peer) const;

  // As Tokens::check with the tokens in force, maybe newer than the peer's; refuse()s if it fails.
  [[nodiscard]] Status check(const CallNeeds& needs, PeerIdentity& peer);

  using OnAudit = std::function<void(const AuditRecord&)>;
  // Set before the first call. Called on any thread.
  void set_audit(OnAudit called, OnAudit refused);
  // Reports a call that was refused for its token.
  void refuse(const CallNeeds& needs, const PeerIdentity& peer, const Status& why);
  // Reports the result of an admin call.
  void called(const CallNeeds& needs, const PeerIdentity& peer, const Status& result) const;

  // Before the payload of an inference is received: checks the right and charges one request.
  [[nodiscard]] Access announce(PeerIdentity& peer, std::string_view model);
  // Once the number of rows is known: charges the requests that announce() has not charged.
  [[nodiscard]] Access enter(PeerIdentity& peer, std::string_view model, std::size_t rows);

  [[nodiscard]] CountersByClient counters() const;

 private:
  class Limits;

  // REQUIRES: mutex_ is held.
  [[nodiscard]] ClientCounters& counters_of(const PeerIdentity& peer);
  [[nodiscard]] Duration device_time(std::string_view model) const;

  DeviceTime device_time_;
  OnAudit called_;
  OnAudit refused_;

  mutable std::mutex mutex_;              // guards what follows, but for guards_any_
  const std::unique_ptr<Limits> limits_;  // its rates and clients
  CountersByClient counters_;
  std::shared_ptr<const Tokens> tokens_;
  std::atomic<bool> guards_any_;  // Tokens::guard_any() of tokens_
};

}  // namespace gpulet::access
