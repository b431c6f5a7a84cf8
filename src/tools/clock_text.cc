#include "tools/clock_text.h"

#include <array>
#include <cmath>
#include <ctime>

namespace gpulet::tools {
namespace {

std::string formatted(double unix_seconds, const char* format) {
  const auto seconds = static_cast<std::time_t>(std::floor(unix_seconds));
  std::tm local{};
  if (localtime_r(&seconds, &local) == nullptr) return "-";
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &local)};
}

}  // namespace

std::string clock_text(double unix_seconds, double now) {
  constexpr double kHalfADay = 12.0 * 3600;
  if (std::abs(now - unix_seconds) > kHalfADay) return date_and_clock_text(unix_seconds);
  return formatted(unix_seconds, "%H:%M:%S");
}

std::string date_and_clock_text(double unix_seconds) {
  return formatted(unix_seconds, "%Y-%m-%d %H:%M:%S");
}

}  // namespace gpulet::tools
