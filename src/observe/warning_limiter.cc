#include "gpulet/observe/warning_limiter.h"

#include <algorithm>

namespace gpulet::observe {

WarningLimiter::Record& WarningLimiter::record_of(std::string_view peer, std::string_view kind,
                                                  Time now) {
  Key key{peer, kind};
  auto found = records_.find(key);
  if (found == records_.end() && records_.size() >= limits_.most) {
    forget_quiet(now);
    if (records_.size() >= limits_.most) {
      key.first.clear();
      found = records_.find(key);
    }
  }
  if (found != records_.end()) return found->second;
  return records_.emplace(std::move(key), Record{static_cast<double>(limits_.at_once), now, 0})
      .first->second;
}

std::optional<std::uint64_t> WarningLimiter::tell(std::string_view peer, std::string_view kind,
                                                  Time now) {
  Record& record = record_of(peer, kind, now);
  const double earned = to_seconds(now - record.seen) / to_seconds(limits_.then_every);
  record.credit = std::min<double>(limits_.at_once, record.credit + std::max(0.0, earned));
  record.seen = now;
  if (record.credit < 1) {
    ++record.untold;
    ++untold_;
    return std::nullopt;
  }
  record.credit -= 1;
  untold_ -= record.untold;
  return std::exchange(record.untold, 0);
}

std::vector<WarningLimiter::Untold> WarningLimiter::settle(Time now) {
  std::vector<Untold> all;
  for (auto& [key, record] : records_) {
    if (record.untold == 0 || now - record.seen < limits_.then_every) continue;
    untold_ -= record.untold;
    all.push_back({key.first, key.second, std::exchange(record.untold, 0)});
  }
  forget_quiet(now);
  return all;
}

// Whoever would be told of as one that is new.
void WarningLimiter::forget_quiet(Time now) {
  const Duration quiet = limits_.at_once * limits_.then_every;
  std::erase_if(records_, [now, quiet](const auto& entry) {
    return entry.second.untold == 0 && now - entry.second.seen >= quiet;
  });
}

}  // namespace gpulet::observe
