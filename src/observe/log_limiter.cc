#include "gpulet/observe/log_limiter.h"

namespace gpulet::observe {

LogRateLimiter::Record& LogRateLimiter::record_of(std::string_view peer, std::string_view kind,
                                                  Time now) {
  Key key{peer, kind};
  auto found = records_.find(key);
  if (found == records_.end() && records_.size() >= limits_.max_entries) {
    erase_idle(now);
    if (records_.size() >= limits_.max_entries) {
      key.first.clear();
      found = records_.find(key);
    }
  }
  if (found != records_.end()) return found->second;
  return records_.emplace(std::move(key), Record{static_cast<double>(limits_.burst), now, 0})
      .first->second;
}

std::optional<std::uint64_t> LogRateLimiter::admit(std::string_view peer, std::string_view kind,
                                                   Time now) {
  Record& record = record_of(peer, kind, now);
  const double earned = to_seconds(now - record.last_message) / to_seconds(limits_.interval);
  record.tokens = std::min<double>(limits_.burst, record.tokens + std::max(0.0, earned));
  record.last_message = now;
  if (record.tokens < 1) {
    ++record.suppressed;
    ++suppressed_;
    return std::nullopt;
  }
  record.tokens -= 1;
  suppressed_ -= record.suppressed;
  return std::exchange(record.suppressed, 0);
}

std::vector<LogRateLimiter::Suppressed> LogRateLimiter::take_suppressed(Time now) {
  std::vector<Suppressed> all;
  for (auto& [key, record] : records_) {
    if (record.suppressed == 0 || now - record.last_message < limits_.interval) continue;
    suppressed_ -= record.suppressed;
    all.push_back({key.first, key.second, std::exchange(record.suppressed, 0)});
  }
  erase_idle(now);
  return all;
}

// Erases the records that are in the state of a new one.
void LogRateLimiter::erase_idle(Time now) {
  const Duration refill = limits_.burst * limits_.interval;
  std::erase_if(records_, [now, refill](const auto& entry) {
    return entry.second.suppressed == 0 && now - entry.second.last_message >= refill;
  });
}

}  // namespace gpulet::observe
