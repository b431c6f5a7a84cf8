// WriteQueue: frames to be written, gathered into as few system calls as possible. Private to net.
// One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <span>
#include <utility>

#include "gpulet/net/asio.h"
#include "gpulet/protocol/frame.h"

namespace gpulet::net {

class WriteQueue {
 public:
  // Asio passes at most 64 pieces to the kernel at once, fewer than any IOV_MAX.
  static constexpr std::size_t kMaxPieces = 64;

  // An Asio buffer sequence, valid until the queue changes.
  class Pieces {
   public:
    [[nodiscard]] const asio::const_buffer* begin() const { return buffers_.data(); }
    [[nodiscard]] const asio::const_buffer* end() const { return buffers_.data() + count_; }
    [[nodiscard]] std::size_t byte_size() const { return bytes_; }

   private:
    friend class WriteQueue;
    void add(const void* data, std::size_t bytes) {
      if (bytes == 0) return;
      buffers_[count_++] = asio::const_buffer(data, bytes);
      bytes_ += bytes;
    }

    std::array<asio::const_buffer, kMaxPieces> buffers_;
    std::size_t count_ = 0;
    std::size_t bytes_ = 0;
  };

  void push(protocol::OutgoingFrame frame) {
    bytes_ += frame.byte_size();
    frames_.push_back(std::move(frame));
  }
  [[nodiscard]] bool empty() const { return frames_.empty(); }

  // The first unwritten pieces.
  [[nodiscard]] Pieces front() const {
    Pieces pieces;
    std::size_t piece = piece_;
    std::size_t offset = piece_offset_;
    for (const protocol::OutgoingFrame& frame : frames_) {
      for (; piece < pieces_in(frame) && pieces.count_ < kMaxPieces; ++piece) {
        const std::span<const std::byte> bytes = piece_of(frame, piece).subspan(offset);
        pieces.add(bytes.data(), bytes.size());
        offset = 0;
      }
      if (pieces.count_ == kMaxPieces) break;
      piece = 0;
    }
    return pieces;
  }

  // The kernel took `bytes` from the front. REQUIRES: not more than front() holds.
  void written(std::size_t bytes) {
    bytes_ -= bytes;
    while (!frames_.empty()) {
      const protocol::OutgoingFrame& frame = frames_.front();
      const std::size_t rest = piece_of(frame, piece_).size() - piece_offset_;
      const std::size_t taken = std::min(rest, bytes);
      piece_offset_ += taken;
      bytes -= taken;
      if (taken < rest) return;
      piece_offset_ = 0;
      if (++piece_ == pieces_in(frame)) {
        piece_ = 0;
        frames_.pop_front();
      }
    }
  }

  void clear() {
    frames_.clear();
    bytes_ = piece_ = piece_offset_ = 0;
  }
  // The queued bytes plus the memory for storing them.
  [[nodiscard]] std::size_t cost() const { return bytes_ + frames_.size() * kFrameCost; }

 private:
  // Memory of a frame's objects; it bounds a queue of tiny frames.
  static constexpr std::size_t kFrameCost = 128;

  static std::span<const std::byte> piece_of(const protocol::OutgoingFrame& frame,
                                             std::size_t piece) {
    if (piece == 0) return std::as_bytes(std::span(frame.head));
    return frame.payload[piece - 1].view();
  }
  static std::size_t pieces_in(const protocol::OutgoingFrame& frame) {
    return 1 + frame.payload.size();
  }

  std::deque<protocol::OutgoingFrame> frames_;
  std::size_t bytes_ = 0;
  std::size_t piece_ = 0;         // first unfinished piece of the first frame: 0 head, 1.. payload
  std::size_t piece_offset_ = 0;  // bytes of it that are written
};

}  // namespace gpulet::net
