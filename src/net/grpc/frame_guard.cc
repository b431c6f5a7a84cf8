#include "net/grpc/frame_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gpulet::net::grpc_api {
namespace {

enum class FrameType : std::uint8_t {
  data = 0,
  headers = 1,
  reset = 3,
  settings = 4,
  ping = 6,
  window_update = 8,
  continuation = 9,
};
constexpr unsigned kEndsStream = 1;

}  // namespace

FrameGuard::FrameGuard(const FrameLimits& limits, TimePoint now)
    : limits_(limits),
      pings_{limits.pings, limits.pings.burst, now},
      settings_{limits.settings, limits.settings.burst, now},
      resets_{limits.resets, limits.resets.burst, now},
      idle_frames_{limits.idle_frames, limits.idle_frames.burst, now} {}

Status FrameGuard::take(Bucket& bucket, const char* what, TimePoint now) {
  const Duration passed = std::chrono::duration_cast<Duration>(now - bucket.filled);
  const double more =
      static_cast<double>(passed.count()) /
      static_cast<double>(std::max<Duration>(bucket.rate.interval, Duration(1)).count());
  bucket.level = std::min(bucket.level + more, bucket.rate.burst);
  bucket.filled = now;
  bucket.level -= 1;
  if (bucket.level >= 0) return {};
  return {StatusCode::overloaded, fmt::format("too many {}", what)};
}

Status FrameGuard::check(std::span<const std::byte> bytes, TimePoint now) {
  while (!bytes.empty()) {
    if (payload_left_ > 0) {
      const std::size_t count = std::min(payload_left_, bytes.size());
      payload_left_ -= count;
      bytes = bytes.subspan(count);
      continue;
    }
    const std::size_t count = std::min(bytes.size(), kHeadBytes - head_bytes_);
    std::memcpy(head_.data() + head_bytes_, bytes.data(), count);
    head_bytes_ += count;
    bytes = bytes.subspan(count);
    if (head_bytes_ < kHeadBytes) break;
    head_bytes_ = 0;
    if (Status good = check_frame(now); !good.ok()) return good;
  }
  return {};
}

Status FrameGuard::check_frame(TimePoint now) {
  const auto byte = [this](std::size_t at) { return std::to_integer<unsigned>(head_[at]); };
  const std::size_t length = byte(0) << 16U | byte(1) << 8U | byte(2);
  payload_left_ = length;
  if (length > limits_.frame_bytes) {
    return {StatusCode::overloaded, fmt::format("a frame of {} bytes exceeds the limit of {}",
                                                length, limits_.frame_bytes)};
  }
  switch (static_cast<FrameType>(byte(3))) {
    case FrameType::headers:
      block_bytes_ = 0;
      continuations_ = 0;
      break;
    case FrameType::continuation:
      ++continuations_;
      break;
    case FrameType::window_update:
      return {};
    case FrameType::data:
      if (length > 0 || (byte(4) & kEndsStream) != 0) return {};
      return take(idle_frames_, "DATA frames without content", now);
    case FrameType::reset:
      return take(resets_, "reset streams", now);
    case FrameType::settings:
      return take(settings_, "SETTINGS frames", now);
    case FrameType::ping:
      return take(pings_, "PING frames", now);
    default:
      return take(idle_frames_, "frames without use", now);
  }
  block_bytes_ += length;
  if (block_bytes_ > limits_.header_block_bytes || continuations_ > limits_.continuations) {
    return {StatusCode::overloaded,
            fmt::format("the headers of a call exceed {} bytes or {} CONTINUATION frames",
                        limits_.header_block_bytes, limits_.continuations)};
  }
  return {};
}

}  // namespace gpulet::net::grpc_api
