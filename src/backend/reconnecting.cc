#include "backend/reconnecting.h"

#include <algorithm>
#include <utility>

namespace gpulet::backend {

bool Reconnecting::absent(Time now) {
  if (!absent_since_) {
    absent_since_ = now;
    reminder_.reset();
  }
  return reminder_.due(now);
}

Duration Reconnecting::ended(bool refused) {
  pause_ = refused ? std::clamp(2 * pause_, kFirstPause, kLongestPause) : Duration{};
  return pause_;
}

Duration Reconnecting::welcomed(Time now) {
  pause_ = {};
  const std::optional<Time> since = std::exchange(absent_since_, std::nullopt);
  return since ? now - *since : Duration{};
}

}  // namespace gpulet::backend
