// FrameGuard: follows the heads of HTTP/2's frames before the HTTP/2 library sees them, and finds
// peers that cost more than they may: header blocks that are too long, floods of frames that are
// cheap to send. Looks at no payload. Private to net/grpc. Pure: the time is an argument.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"

namespace gpulet::net::grpc_api {

// Frames of a kind: `burst` at once, then one in every `interval` on average.
struct FrameRate {
  double burst = 0;
  Duration interval{};
};

struct FrameLimits {
  std::size_t frame_bytes = 64U << 10U;
  // As sent, with all CONTINUATION frames.
  std::size_t header_block_bytes = 16U << 10U;
  std::size_t continuations = 8;  // of one header block
  FrameRate pings{256, std::chrono::milliseconds(100)};
  FrameRate settings{64, std::chrono::seconds(1)};
  FrameRate resets{2048, std::chrono::milliseconds(1)};  // of streams, by either side
  // PRIORITY, GOAWAY, unknown types, and DATA without content.
  FrameRate idle_frames{512, std::chrono::milliseconds(20)};
};

class FrameGuard {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit FrameGuard(const FrameLimits& limits, TimePoint now);

  // Follows bytes behind the connection preface. Fails with overloaded once the peer has broken a
  // limit; the bytes then must not be processed.
  [[nodiscard]] Status check(std::span<const std::byte> bytes, TimePoint now);
  // This side has reset a stream for an error of the peer. Fails as check().
  [[nodiscard]] Status on_reset(TimePoint now) { return take(resets_, "reset streams", now); }

 private:
  static constexpr std::size_t kHeadBytes = 9;

  struct Bucket {
    FrameRate rate;
    double level = 0;
    TimePoint filled{};
  };
  [[nodiscard]] static Status take(Bucket& bucket, const char* what, TimePoint now);
  [[nodiscard]] Status check_frame(TimePoint now);

  const FrameLimits limits_;
  Bucket pings_;
  Bucket settings_;
  Bucket resets_;
  Bucket idle_frames_;
  std::array<std::byte, kHeadBytes> head_{};
  std::size_t head_bytes_ = 0;
  std::size_t payload_left_ = 0;
  std::size_t block_bytes_ = 0;
  std::size_t continuations_ = 0;
};

}  // namespace gpulet::net::grpc_api
