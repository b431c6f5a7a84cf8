// Quotas: how much each client may use (config::ClientLimits). Rates are token buckets that hold
// one second's worth, at least one request. A call larger than the bucket is admitted when the
// bucket is full and leaves a debt. Within any t seconds at most (1 + t) times the rate passes,
// plus the excess of the largest call over the bucket.
//
// Pure: the time is an argument and never decreases. One thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gpulet/base/time.h"
#include "gpulet/config/daemon_config.h"

namespace gpulet::access {

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

}  // namespace gpulet::access
