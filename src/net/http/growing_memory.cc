#include "net/http/growing_memory.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace gpulet::net::http {
namespace {

constexpr std::size_t kFirstBytes = 16U << 10U;

}  // namespace

Result<std::span<std::byte>> GrowingMemory::space() {
  if (size_ < memory_.size()) return memory_.view().subspan(size_);
  if (size_ >= max_bytes_) {
    return Status(StatusCode::invalid,
                  "the body is longer than " + std::to_string(max_bytes_) + " bytes");
  }
  const std::size_t wanted = std::min(std::max(2 * size_, kFirstBytes), max_bytes_);
  Result<MutableBytes> larger = buffers_->take(wanted);
  if (!larger.ok()) return larger.status();
  if (size_ > 0) std::memcpy(larger.value().view().data(), memory_.view().data(), size_);
  memory_ = std::move(larger).value();
  return memory_.view().subspan(size_);
}

Status GrowingMemory::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const Result<std::span<std::byte>> room = space();
    if (!room.ok()) return room.status();
    const std::size_t count = std::min(room.value().size(), bytes.size());
    std::memcpy(room.value().data(), bytes.data(), count);
    filled(count);
    bytes = bytes.subspan(count);
  }
  return {};
}

Bytes GrowingMemory::take() {
  const MutableBytes memory = std::exchange(memory_, {});
  return memory.freeze().slice(0, std::exchange(size_, 0));
}

}  // namespace gpulet::net::http
