// Time as a value. Pure modules take the time as an argument: EngineClock has no now(). The daemons
// map the steady clock to it; the simulator and the tests advance it themselves.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace gpulet {

using Duration = std::chrono::nanoseconds;

// A clock that is never read: it gives the engine's time points a type of their own.
struct EngineClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<EngineClock, Duration>;
  static constexpr bool is_steady = true;
};

using Time = EngineClock::time_point;

// Later than every time that occurs.
inline constexpr Time kNever = Time::max();

[[nodiscard]] constexpr double to_ms(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}
[[nodiscard]] constexpr double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}
[[nodiscard]] constexpr Duration from_ms(double milliseconds) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, std::milli>(milliseconds));
}
[[nodiscard]] constexpr Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// ---- backoff
//
// Delays that double with every failure in a row. Pure; any thread.

// The delay after that many (> 0) failures in a row: `first`, doubled up to `longest`.
[[nodiscard]] inline Duration backoff_after(std::uint32_t failures, Duration first,
                                            Duration longest) {
  for (; failures > 1 && first < longest; --failures) first *= 2;
  return std::min(first, longest);
}

}  // namespace gpulet
