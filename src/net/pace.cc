#include "gpulet/net/pace.h"

#include <algorithm>

namespace gpulet::net {

Pace::Pace(const PaceLimits& limits)
    : limits_(limits),
      bytes_of_window_(static_cast<std::size_t>(static_cast<double>(limits.bytes_per_second) *
                                                to_seconds(limits.window))) {}

void Pace::begin(TimePoint now) {
  active_ = true;
  end_ = limits_.longest > Duration::zero() ? now + limits_.longest : TimePoint::max();
  begin_window(now);
}

void Pace::received(std::size_t bytes, TimePoint now) {
  if (bytes < missing_) {
    missing_ -= bytes;
  } else {
    begin_window(now);
  }
}

// A window ends as soon as it has its bytes: a sender that was fast cannot rest on it.
void Pace::begin_window(TimePoint now) {
  missing_ = bytes_of_window_;
  deadline_ = bytes_of_window_ > 0 ? std::min(now + limits_.window, end_) : end_;
}

std::string Pace::demand() const {
  std::string text;
  if (limits_.bytes_per_second > 0)
    text = std::to_string(limits_.bytes_per_second) + " bytes a second";
  if (limits_.longest > Duration::zero()) {
    text +=
        (text.empty() ? "" : ", and ") + std::string("all of it within ") +
        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(limits_.longest).count()) +
        " s";
  }
  return text;
}

}  // namespace gpulet::net
