#include "net/grpc/message_reader.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace gpulet::net::grpc_api {
namespace {

constexpr std::size_t kFirstBytes = 64U << 10U;
constexpr std::size_t kGrowth = 4;
constexpr std::size_t kInflatedPerStep = 256U << 10U;  // takes about a millisecond
constexpr int kAnyFraming = 15 + 32;                   // the largest window; zlib or gzip

Status longer_than(std::size_t most) {
  return {StatusCode::overloaded,
          fmt::format("the decompressed request exceeds the limit of {} bytes", most)};
}

}  // namespace

// ---- GrowingBuffer

void GrowingBuffer::Free::operator()(std::byte* memory) const { std::free(memory); }

Result<std::span<std::byte>> GrowingBuffer::space(std::size_t at_most) {
  if (size_ == capacity_) {
    const std::size_t capacity = std::min(std::max(kFirstBytes, kGrowth * capacity_), at_most);
    if (!charge_.grow_by(capacity - capacity_)) {
      return Status(StatusCode::overloaded,
                    fmt::format("gRPC messages in memory reach the limit of {} bytes "
                                "(max_buffered_mb); retry later",
                                charge_.budget().most()));
    }
    if (Status held = hold(capacity, at_most); !held.ok()) return held;
    capacity_ = capacity;
  }
  return std::span(start_, std::min(capacity_, at_most)).subspan(size_);
}

Status GrowingBuffer::hold(std::size_t capacity, std::size_t at_most) {
  if (pool_ != nullptr) {
    if (start_ != nullptr) return {};
    GPULET_TRY(from_pool_, pool_->take_incoming(at_most));
    start_ = from_pool_.memory().view().data();
    return {};
  }
  // realloc() can often extend memory without a copy.
  void* const larger = std::realloc(from_heap_.get(), capacity);
  if (larger == nullptr) throw std::bad_alloc();
  static_cast<void>(from_heap_.release());
  start_ = static_cast<std::byte*>(larger);
  from_heap_.reset(start_);
  return {};
}

Status GrowingBuffer::filled(std::size_t bytes) {
  size_ += bytes;
  return from_pool_.filled(size_);
}

// ---- MessageReader

std::optional<MessageCoding> parse_message_coding(std::string_view text) {
  if (text.empty() || text == "identity") return MessageCoding::identity;
  if (text == "gzip") return MessageCoding::gzip;
  if (text == "deflate") return MessageCoding::deflate;
  return std::nullopt;
}

struct MessageReader::Inflater {
  explicit Inflater(MemoryBudgetPointer budget) : output(std::move(budget)) {
    if (inflateInit2(&zlib, kAnyFraming) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&zlib); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream zlib{};
  std::size_t taken = 0;
  GrowingBuffer output;
};

MessageReader::MessageReader(std::size_t most_bytes, MessageCoding coding,
                             MemoryBudgetPointer budget, BufferPool& pool)
    : most_bytes_(most_bytes), coding_(coding), budget_(std::move(budget)), pool_(pool) {}
MessageReader::~MessageReader() = default;

Result<std::size_t> MessageReader::take(std::span<const std::byte> bytes) {
  std::size_t taken = 0;
  while (taken < bytes.size() && !complete_) {
    const std::span<const std::byte> rest = bytes.subspan(taken);
    if (prefix_bytes_ < kMessagePrefixBytes) {
      const std::size_t count = std::min(rest.size(), kMessagePrefixBytes - prefix_bytes_);
      std::memcpy(prefix_ + prefix_bytes_, rest.data(), count);
      prefix_bytes_ += count;
      taken += count;
      if (prefix_bytes_ < kMessagePrefixBytes) break;
      if (Status begun = begin_message(); !begun.ok()) return begun;
      continue;
    }
    GPULET_TRY(const std::span<std::byte> space, received_->space(length_));
    const std::size_t count = std::min(rest.size(), space.size());
    std::memcpy(space.data(), rest.data(), count);
    if (Status filled = received_->filled(count); !filled.ok()) return filled;
    taken += count;
    complete_ = received_->size() == length_;
  }
  return taken;
}

Status MessageReader::begin_message() {
  const auto byte = [this](std::size_t at) { return std::to_integer<std::uint32_t>(prefix_[at]); };
  length_ = byte(1) << 24U | byte(2) << 16U | byte(3) << 8U | byte(4);
  if (byte(0) > 1) return {StatusCode::malformed, "the first byte of a message must be 0 or 1"};
  compressed_ = byte(0) == 1;
  if (compressed_ && coding_ == MessageCoding::identity)
    return {StatusCode::malformed, "a compressed message needs the header grpc-encoding"};
  if (length_ > most_bytes_) {
    return {StatusCode::overloaded,
            fmt::format("the request of {} bytes exceeds the limit of {}", length_, most_bytes_)};
  }
  // The decompressed message is what counts where there is one.
  received_ = std::make_unique<GrowingBuffer>(budget_, compressed_ ? nullptr : &pool_);
  complete_ = length_ == 0;
  return {};
}

Result<bool> MessageReader::decompress_some() {
  if (!compressed_) return true;
  if (!inflater_) inflater_ = std::make_unique<Inflater>(budget_);
  z_stream& zlib = inflater_->zlib;
  GrowingBuffer& output = inflater_->output;
  std::size_t produced = 0;
  while (produced < kInflatedPerStep) {
    // One byte more than allowed tells a message of the largest size from a longer one.
    GPULET_TRY(const std::span<std::byte> space, output.space(most_bytes_ + 1));
    const std::span<std::byte> room = space.first(std::min(space.size(), kInflatedPerStep));
    const std::span<const std::byte> input = received_->view().subspan(inflater_->taken);
    zlib.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data()));
    zlib.avail_in = static_cast<uInt>(input.size());
    zlib.next_out = reinterpret_cast<Bytef*>(room.data());
    zlib.avail_out = static_cast<uInt>(room.size());
    const int outcome = inflate(&zlib, Z_NO_FLUSH);
    inflater_->taken += input.size() - zlib.avail_in;
    if (Status filled = output.filled(room.size() - zlib.avail_out); !filled.ok()) return filled;
    produced += room.size() - zlib.avail_out;
    if (output.size() > most_bytes_) return longer_than(most_bytes_);
    if (outcome == Z_STREAM_END && inflater_->taken == length_) return true;
    if (outcome != Z_OK) {
      return Status(StatusCode::malformed,
                    "a compressed message is not valid gzip or zlib data, or ends too early");
    }
  }
  return false;
}

Bytes MessageReader::take_message() {
  auto owner =
      std::make_shared<std::pair<std::unique_ptr<GrowingBuffer>, std::unique_ptr<Inflater>>>(
          std::move(received_), std::move(inflater_));
  const std::span<const std::byte> view =
      compressed_ ? owner->second->output.view() : owner->first->view();
  if (compressed_) owner->first.reset();
  prefix_bytes_ = 0;
  complete_ = false;
  return {std::move(owner), view};
}

}  // namespace gpulet::net::grpc_api
