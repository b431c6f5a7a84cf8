#include "net/stream_pump.h"

namespace gpulet::net {
namespace {

using boost::system::error_code;

constexpr int kMaxWritesPerFlush = 16;

}  // namespace

// Writes without waiting for readiness: the socket nearly always has room.
void StreamPump::flush() {
  if (closed_ || blocked_) return;
  for (int i = 0; i < kMaxWritesPerFlush && !queue_.empty(); ++i) {
    const WriteQueue::Pieces pieces = queue_.front();
    error_code error;
    const std::size_t bytes = stream_.write_some(pieces, error);
    if (error == asio::error::would_block || error == asio::error::try_again)
      return wait_until_writable();
    if (error) return owner_.on_write_failed(error);
    queue_.written(bytes);
    if (bytes > 0) last_progress_ = {};
    if (bytes < pieces.byte_size()) return wait_until_writable();
  }
  if (!queue_.empty()) return flush_later();
  owner_.on_all_written();
}

void StreamPump::flush_later() {
  if (flush_posted_ || blocked_ || closed_) return;
  flush_posted_ = true;
  asio::post(stream_.get_executor(), [this, keep = owner_.shared()] {
    flush_posted_ = false;
    flush();
  });
}

void StreamPump::close() {
  closed_ = true;
  stream_.close();
  queue_.clear();
}

void StreamPump::wait_until_writable() {
  blocked_ = true;
  if (last_progress_ == Clock::time_point{}) last_progress_ = Clock::now();
  stream_.async_wait_writable([this, keep = owner_.shared()](const error_code& error) {
    blocked_ = false;
    if (closed_) return;
    if (error) return owner_.on_write_failed(error);
    flush();
  });
  owner_.on_blocked();
}

}  // namespace gpulet::net
