// Inbox: received bytes of an HTTP connection that are not parsed yet. Private to net/http.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gpulet::net::http {

class Inbox {
 public:
  [[nodiscard]] std::span<const std::byte> view() const {
    return {bytes_.data() + begin_, end_ - begin_};
  }
  [[nodiscard]] bool empty() const { return begin_ == end_; }
  [[nodiscard]] std::size_t capacity() const { return bytes_.size(); }
  void take(std::size_t bytes) { begin_ += bytes; }

  // Free space in a buffer of at least `capacity`; empty if it is full. Valid until the next call,
  // so that a pending read may fill it.
  [[nodiscard]] std::span<std::byte> space(std::size_t capacity);
  void received(std::size_t bytes) { end_ += bytes; }
  void clear() { begin_ = end_ = 0; }
  void release() { *this = {}; }

 private:
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace gpulet::net::http
