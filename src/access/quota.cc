#include "access/quota.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpulet::access {
namespace {

constexpr double kUnlimited = 1e12;
constexpr double kSlack = 1e-6;  // relative to the burst, for rounding errors
// The wait for requests in flight to end is unknown.
constexpr Duration kInFlightRetry = std::chrono::milliseconds(100);
constexpr double kLongestWaitSeconds = 3600;
// Accounts with requests in flight are skipped, at most this many at a time.
constexpr int kMostTries = 16;

double or_unlimited(double rate) { return rate > 0 ? rate : kUnlimited; }

TokenBucket requests_bucket(const config::ClientLimits& limits, Time now) {
  const double rate = or_unlimited(limits.requests_per_s);
  return {rate, std::max(1.0, rate), now};
}

TokenBucket device_bucket(const config::ClientLimits& limits, Time now) {
  const double rate = or_unlimited(limits.device_ms_per_s);
  return {rate, rate, now};
}

}  // namespace

std::string_view to_string(QuotaLimit limit) {
  switch (limit) {
    case QuotaLimit::none:
      return "none";
    case QuotaLimit::requests:
      return "requests_per_s";
    case QuotaLimit::device_time:
      return "device_ms_per_s";
    case QuotaLimit::in_flight:
      return "max_requests";
  }
  return "unknown";
}

TokenBucket::TokenBucket(double rate_per_s, double burst, Time now)
    : rate_per_s_(rate_per_s), burst_(burst), level_(burst), filled_(now) {}

void TokenBucket::fill(Time now) {
  if (now <= filled_) return;
  level_ = std::min(burst_, level_ + rate_per_s_ * to_seconds(now - filled_));
  filled_ = now;
}

Duration TokenBucket::wait_for(double amount, Time now) {
  fill(now);
  const double missing = std::min(amount, burst_) - level_;
  if (missing <= kSlack * burst_) return Duration::zero();
  return from_seconds(std::min(kLongestWaitSeconds, missing / rate_per_s_)) + Duration(1);
}

void TokenBucket::take(double amount, Time now) {
  fill(now);
  level_ -= amount;
}

Quota::Quota(const config::ClientLimits& limits, Time now)
    : limits_(limits),
      requests_(requests_bucket(limits, now)),
      device_ms_(device_bucket(limits, now)) {}

QuotaVerdict Quota::check_in_flight(std::uint32_t requests) const {
  const bool crowded = limits_.max_requests > 0 && in_flight_ + requests > limits_.max_requests;
  return crowded ? QuotaVerdict{QuotaLimit::in_flight, kInFlightRetry} : QuotaVerdict{};
}

QuotaVerdict Quota::check_rates(const QuotaUse& use, Time now) {
  if (limits_.requests_per_s > 0) {
    const Duration wait = requests_.wait_for(use.requests, now);
    if (wait > Duration::zero()) return {QuotaLimit::requests, wait};
  }
  if (limits_.device_ms_per_s > 0) {
    const Duration wait = device_ms_.wait_for(to_ms(use.device_time), now);
    if (wait > Duration::zero()) return {QuotaLimit::device_time, wait};
  }
  return {};
}

void Quota::pay(const QuotaUse& use, Time now) {
  if (limits_.requests_per_s > 0) requests_.take(use.requests, now);
  if (limits_.device_ms_per_s > 0) device_ms_.take(to_ms(use.device_time), now);
}

void Quota::change(const config::ClientLimits& limits, Time now) {
  if (limits == limits_) return;
  limits_ = limits;
  requests_ = requests_bucket(limits, now);
  device_ms_ = device_bucket(limits, now);
}

std::shared_ptr<Quota> QuotaBook::of(std::string_view client, const config::ClientLimits& limits,
                                     Time now) {
  std::string key(client);
  const auto found = accounts_.find(key);
  if (found != accounts_.end()) {
    by_use_.splice(by_use_.begin(), by_use_, found->second.used);
    found->second.quota->change(limits, now);
    return found->second.quota;
  }
  if (accounts_.size() >= most_) evict_one();
  by_use_.push_front(key);
  const auto made = std::make_shared<Quota>(limits, now);
  accounts_.emplace(std::move(key), Account{made, by_use_.begin()});
  return made;
}

void QuotaBook::evict_one() {
  for (int tries = 0; tries < kMostTries && !by_use_.empty(); ++tries) {
    const auto oldest = accounts_.find(by_use_.back());
    if (oldest->second.quota->in_flight() == 0) {
      accounts_.erase(oldest);
      by_use_.pop_back();
      return;
    }
    by_use_.splice(by_use_.begin(), by_use_, std::prev(by_use_.end()));
  }
}

}  // namespace gpulet::access
