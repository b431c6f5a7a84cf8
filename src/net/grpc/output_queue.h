// OutputQueue: the bytes that a connection has to write, in pieces that one system call can take
// together. Private to net/grpc. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "gpulet/base/bytes.h"
#include "gpulet/net/asio.h"

namespace gpulet::net::grpc_api {

class OutputQueue {
 public:
  // Asio passes at most 64 pieces to the kernel at once.
  static constexpr std::size_t kMaxPieces = 64;

  // An Asio buffer sequence, valid until the queue changes.
  class Pieces {
   public:
    [[nodiscard]] const asio::const_buffer* begin() const { return buffers_.data(); }
    [[nodiscard]] const asio::const_buffer* end() const { return buffers_.data() + count_; }

   private:
    friend class OutputQueue;
    std::array<asio::const_buffer, kMaxPieces> buffers_;
    std::size_t count_ = 0;
  };

  // Copies the bytes.
  void add(std::span<const std::byte> bytes) {
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    bytes_ += bytes.size();
  }
  // Shares the memory of `bytes`, but copies short ones.
  void add(Bytes bytes) {
    if (bytes.size() <= kShort) return add(bytes.view());
    end_text();
    bytes_ += bytes.size();
    pieces_.push_back(std::move(bytes));
  }

  [[nodiscard]] bool empty() const { return bytes_ == 0; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

  // The unwritten bytes, up to kMaxPieces pieces of them.
  [[nodiscard]] Pieces front() {
    end_text();
    Pieces front;
    std::size_t skipped = written_;
    for (const Bytes& piece : pieces_) {
      if (front.count_ == kMaxPieces) break;
      const auto rest = piece.view().subspan(std::exchange(skipped, 0));
      front.buffers_[front.count_++] = asio::const_buffer(rest.data(), rest.size());
    }
    return front;
  }
  // Removes the first `bytes` bytes. REQUIRES: front() has that many.
  void written(std::size_t bytes) {
    bytes_ -= bytes;
    written_ += bytes;
    while (!pieces_.empty() && written_ >= pieces_.front().size()) {
      written_ -= pieces_.front().size();
      pieces_.pop_front();
    }
  }

 private:
  static constexpr std::size_t kShort = 1024;  // bytes; a copy costs less than a piece

  // Moves the copied bytes to the pieces.
  void end_text() {
    if (text_.empty()) return;
    const auto owner = std::make_shared<const std::string>(std::exchange(text_, {}));
    pieces_.emplace_back(owner, std::as_bytes(std::span(*owner)));
  }

  std::deque<Bytes> pieces_;
  std::string text_;         // copied bytes that follow the pieces
  std::size_t written_ = 0;  // of the first piece
  std::size_t bytes_ = 0;    // unwritten, of the pieces and text_
};

}  // namespace gpulet::net::grpc_api
