#include "net/http/inbox.h"

#include <cstring>

namespace gpulet::net::http {

std::span<std::byte> Inbox::space(std::size_t capacity) {
  if (begin_ > 0) {
    std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (bytes_.size() < capacity) bytes_.resize(capacity);
  return {bytes_.data() + end_, bytes_.size() - end_};
}

}  // namespace gpulet::net::http
