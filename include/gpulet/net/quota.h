// Quota: what one client has used of its limits (config::ClientLimits), and QuotaBook: those of
// all clients, a bounded number of them. Pure: the time is an argument and never goes back. One
// thread at a time.
//
// Rates are token buckets that hold what a second brings, at least one request. A call larger than
// its bucket is let through when the bucket is full, and paid for afterwards; so within any t
// seconds no more passes than 1 s and t of the rate, and what the largest call is beyond a bucket.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gpulet/config/security_config.h"
#include "gpulet/core/time.h"

namespace gpulet::net {

class TokenBucket {
 public:
  // REQUIRES: both above 0. Full.
  TokenBucket(double rate_per_s, double burst, Time now);

  // How long until that much passes; zero: now.
  [[nodiscard]] Duration wait_for(double amount, Time now);
  // Takes it, down below zero where that was not waited for.
  void take(double amount, Time now);
  // Holds as much as it can.
  [[nodiscard]] bool full(Time now);

 private:
  void fill(Time now);

  double rate_per_s_;
  double burst_;
  double level_;
  Time filled_;
};

enum class QuotaLimit : std::uint8_t { none, requests, device_time, under_way };
// The key of the limit in the configuration: "requests_per_s", ...
[[nodiscard]] std::string_view to_string(QuotaLimit limit);

struct QuotaVerdict {
  QuotaLimit reached = QuotaLimit::none;
  Duration retry_after{};  // when asking again may help, where something was reached

  [[nodiscard]] bool admitted() const { return reached == QuotaLimit::none; }
};

// What a call asks for.
struct QuotaUse {
  std::uint32_t requests = 1;  // rows
  Duration device_time{};      // of all rows
};

class Quota {
 public:
  Quota(const config::ClientLimits& limits, Time now);

  // Whether the rates let it through now, and whether so many more may be under way.
  [[nodiscard]] QuotaVerdict judge_rates(const QuotaUse& use, Time now);
  [[nodiscard]] QuotaVerdict judge_place(std::uint32_t requests) const;
  // Takes it, judged or not.
  void pay(const QuotaUse& use, Time now);
  void enter(std::uint32_t requests) { under_way_ += requests; }
  // REQUIRES: they entered.
  void leave(std::uint32_t requests) { under_way_ -= requests; }

  [[nodiscard]] const config::ClientLimits& limits() const { return limits_; }
  // Other limits from now on; what is under way stays counted.
  void change(const config::ClientLimits& limits, Time now);
  [[nodiscard]] std::uint64_t under_way() const { return under_way_; }
  // Nothing is under way, and forgetting it would let nothing more through.
  [[nodiscard]] bool idle(Time now);

 private:
  config::ClientLimits limits_;
  TokenBucket requests_;
  TokenBucket device_ms_;
  std::atomic<std::uint64_t> under_way_ = 0;  // a place may end on another thread
};

class QuotaBook {
 public:
  // Beyond so many, the one that was asked for longest ago is forgotten where nothing of it is
  // under way.
  explicit QuotaBook(std::size_t most = 16384) : most_(most) {}

  // The client's, made where there is none. It stays while it is held.
  [[nodiscard]] std::shared_ptr<Quota> of(std::string_view client,
                                          const config::ClientLimits& limits, Time now);
  [[nodiscard]] std::size_t size() const { return accounts_.size(); }

 private:
  struct Account {
    std::shared_ptr<Quota> quota;
    std::list<std::string>::iterator place;
  };
  void make_room();

  std::size_t most_;
  std::unordered_map<std::string, Account> accounts_;
  std::list<std::string> by_use_;  // the last one asked for first
};

}  // namespace gpulet::net
