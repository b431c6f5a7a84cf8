// MessageReader: gRPC's length-prefixed messages, received piece by piece within bounds.
// MemoryBudget: what all connections of a server may hold. Private to net/grpc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/net/buffer_pool.h"

namespace gpulet::net::grpc_api {

// Any thread.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t most) : most_(most) {}

  [[nodiscard]] bool try_take(std::size_t bytes) {
    if (taken_.fetch_add(bytes) + bytes <= most_) return true;
    taken_ -= bytes;
    return false;
  }
  // REQUIRES: taken before.
  void give_back(std::size_t bytes) { taken_ -= bytes; }
  [[nodiscard]] std::size_t taken() const { return taken_; }
  [[nodiscard]] std::size_t most() const { return most_; }

 private:
  const std::size_t most_;
  std::atomic<std::size_t> taken_ = 0;
};
using MemoryBudgetPointer = std::shared_ptr<MemoryBudget>;

// Bytes of a budget, given back when it is destroyed. One thread at a time.
class Charge {
 public:
  explicit Charge(MemoryBudgetPointer budget) : budget_(std::move(budget)) {}
  ~Charge() {
    if (budget_) budget_->give_back(bytes_);
  }
  Charge(Charge&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&&) = delete;

  [[nodiscard]] bool grow_by(std::size_t bytes) {
    if (!budget_->try_take(bytes)) return false;
    bytes_ += bytes;
    return true;
  }
  [[nodiscard]] const MemoryBudget& budget() const { return *budget_; }

 private:
  MemoryBudgetPointer budget_;
  std::size_t bytes_ = 0;
};

// Contiguous memory whose charge grows with the bytes in it. One thread at a time.
class GrowingBuffer {
 public:
  // `pool`: for memory whose final size is known; null: the heap. It must outlive space() calls.
  explicit GrowingBuffer(MemoryBudgetPointer budget, BufferPool* pool = nullptr)
      : charge_(std::move(budget)), pool_(pool) {}

  // Free memory, never empty and at most `at_most` - size() bytes. With a pool, `at_most` is the
  // final size. Fails with overloaded where the budget is spent, or the pool. REQUIRES: size() <
  // at_most, which is the same in all calls.
  [[nodiscard]] Result<std::span<std::byte>> space(std::size_t at_most);
  // The first `bytes` of space() were written. Fails with overloaded where the pool is spent.
  [[nodiscard]] Status filled(std::size_t bytes);
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<const std::byte> view() const { return {start_, size_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  [[nodiscard]] Status hold(std::size_t capacity, std::size_t at_most);

  Charge charge_;
  BufferPool* const pool_;
  std::unique_ptr<std::byte, Free> from_heap_;
  IncomingBytes from_pool_;
  std::byte* start_ = nullptr;  // of either
  std::size_t capacity_ = 0;    // charged
  std::size_t size_ = 0;
};

enum class MessageCoding : std::uint8_t { identity, gzip, deflate };
// The value of grpc-encoding; empty text is identity. Empty for an unknown one.
[[nodiscard]] std::optional<MessageCoding> parse_message_coding(std::string_view text);

inline constexpr std::size_t kMessagePrefixBytes = 5;

// One thread at a time.
class MessageReader {
 public:
  // `most_bytes` of a message, as sent and decompressed. `pool`, which must outlive the reader, has
  // the memory of large messages.
  MessageReader(std::size_t most_bytes, MessageCoding coding, MemoryBudgetPointer budget,
                BufferPool& pool);
  ~MessageReader();
  MessageReader(const MessageReader&) = delete;
  MessageReader& operator=(const MessageReader&) = delete;

  // Takes bytes up to the end of the current message and returns how many. Fails with overloaded
  // (too long, or the budget is spent) or malformed; the reader is then of no more use.
  [[nodiscard]] Result<std::size_t> take(std::span<const std::byte> bytes);
  // The current message has arrived, maybe compressed.
  [[nodiscard]] bool complete() const { return complete_; }
  // Part of a message has arrived.
  [[nodiscard]] bool begun() const { return prefix_bytes_ > 0 && !complete_; }

  // Decompresses a bounded number of bytes. True once the message is ready. Fails as take().
  // REQUIRES: complete().
  [[nodiscard]] Result<bool> decompress_some();
  // Returns the message and starts over. REQUIRES: decompress_some() returned true.
  [[nodiscard]] Bytes take_message();

 private:
  struct Inflater;

  [[nodiscard]] Status begin_message();

  const std::size_t most_bytes_;
  const MessageCoding coding_;
  const MemoryBudgetPointer budget_;
  BufferPool& pool_;
  std::byte prefix_[kMessagePrefixBytes] = {};
  std::size_t prefix_bytes_ = 0;
  std::size_t length_ = 0;
  bool compressed_ = false;
  bool complete_ = false;
  std::unique_ptr<GrowingBuffer> received_;
  std::unique_ptr<Inflater> inflater_;
};

}  // namespace gpulet::net::grpc_api
