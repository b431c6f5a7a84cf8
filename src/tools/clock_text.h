// Moments as the clock on the wall shows them, in the local time zone. Any thread.
#pragma once

#include <string>

namespace gpulet::tools {

// "11:45:02", or "2026-11-23 11:45:02" where it is more than twelve hours from `now`. Both are in
// seconds since 1970.
[[nodiscard]] std::string clock_text(double unix_seconds, double now);
// "2026-11-23 11:45:02"
[[nodiscard]] std::string date_and_clock_text(double unix_seconds);

}  // namespace gpulet::tools
