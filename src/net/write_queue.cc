#include "net/write_queue.h"

#include <algorithm>
#include <utility>

namespace gpulet::net {
namespace {

std::span<const std::byte> piece_of(const OutgoingFrame& frame, std::size_t piece) {
  if (piece == 0) return std::as_bytes(std::span(frame.head));
  return frame.payload[piece - 1].view();
}

std::size_t pieces_in(const OutgoingFrame& frame) { return 1 + frame.payload.size(); }

}  // namespace

void WriteQueue::Pieces::add(const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  buffers_[count_++] = asio::const_buffer(data, bytes);
  bytes_ += bytes;
}

void WriteQueue::push(OutgoingFrame frame) {
  bytes_ += frame.byte_size();
  frames_.push_back(std::move(frame));
}

WriteQueue::Pieces WriteQueue::front() const {
  Pieces pieces;
  std::size_t piece = piece_;
  std::size_t offset = piece_offset_;
  for (const OutgoingFrame& frame : frames_) {
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

void WriteQueue::written(std::size_t bytes) {
  bytes_ -= bytes;
  while (!frames_.empty()) {
    const OutgoingFrame& frame = frames_.front();
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

void WriteQueue::clear() {
  frames_.clear();
  bytes_ = piece_ = piece_offset_ = 0;
}

}  // namespace gpulet::net
