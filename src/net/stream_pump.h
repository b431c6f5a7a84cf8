// StreamPump: writes what its owner queues to one stream. Under every connection, of frames and of
// HTTP. StandstillGrace: deadlines that pass while the process stands still. Private to net.
// Single-strand types on the executor of the stream.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "gpulet/base/time.h"
#include "gpulet/net/stream.h"
#include "gpulet/protocol/frame.h"
#include "net/write_queue.h"

namespace gpulet::net {

class StreamPump {
 public:
  using Clock = std::chrono::steady_clock;

  class Owner {
   public:
    // Keeps the owner, and so the pump, while an operation is in flight.
    [[nodiscard]] virtual std::shared_ptr<Owner> shared() = 0;
    // The kernel has taken everything that was queued. Also called by a flush of an empty queue.
    virtual void on_all_written() = 0;
    // The peer has no room: write_deadline() counts from now on.
    virtual void on_blocked() = 0;
    virtual void on_write_failed(const boost::system::error_code& error) = 0;

   protected:
    ~Owner() = default;
  };

  StreamPump(Stream stream, Owner& owner) : stream_(std::move(stream)), owner_(owner) {}
  StreamPump(const StreamPump&) = delete;
  StreamPump& operator=(const StreamPump&) = delete;

  [[nodiscard]] Stream& stream() { return stream_; }
  [[nodiscard]] const Stream& stream() const { return stream_; }

  void push(protocol::OutgoingFrame frame) { queue_.push(std::move(frame)); }
  [[nodiscard]] bool empty() const { return queue_.empty(); }
  [[nodiscard]] std::size_t cost() const { return queue_.cost(); }

  // Writes as much as the kernel takes in a bounded number of calls, then continues in later turns.
  // Does nothing while the peer has no room.
  void flush();
  // At the end of the turn, because others may queue more in it.
  void flush_later();
  // Forgets what is queued.
  void clear() { queue_.clear(); }
  // The stream is closed: operations in flight end without calling the owner.
  void close();

  [[nodiscard]] bool blocked() const { return blocked_; }
  // The last time at which the peer took a byte, or had room. Only while blocked().
  [[nodiscard]] Clock::time_point last_progress() const { return last_progress_; }
  // Until which it must take the next byte; max: nothing waits.
  [[nodiscard]] Clock::time_point write_deadline(Duration timeout) const {
    return blocked_ ? last_progress_ + timeout : Clock::time_point::max();
  }

 private:
  void wait_until_writable();

  Stream stream_;
  Owner& owner_;
  WriteQueue queue_;
  bool flush_posted_ = false;
  bool blocked_ = false;  // the socket is full
  bool closed_ = false;
  Clock::time_point last_progress_{};  // zero: the last write had progress
};

// Whether a deadline counts. One that passes while the process stands still has a time of grace,
// because the peer's bytes of that time may wait in the socket.
class StandstillGrace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Duration kStandstill = std::chrono::milliseconds(250);
  static constexpr Duration kGrace = std::chrono::milliseconds(500);

  // For a deadline that has passed, in a check that was due at `due` and runs at `now`.
  [[nodiscard]] bool counts(Clock::time_point due, Clock::time_point now) {
    if (until_ > now) return false;
    if (now - due <= kStandstill || until_ != Clock::time_point{}) return true;
    until_ = now + kGrace;
    return false;
  }
  // For a periodic check of many deadlines: whether they count in it.
  [[nodiscard]] bool counts_sweep(Clock::time_point due, Clock::time_point now) {
    if (now - due > kStandstill && now >= until_ + kGrace) until_ = now + kGrace;
    return now >= until_;
  }
  // No deadline has passed.
  void reset() { until_ = {}; }
  // Before which no deadline counts.
  [[nodiscard]] Clock::time_point until() const { return until_; }

 private:
  Clock::time_point until_{};
};

}  // namespace gpulet::net
