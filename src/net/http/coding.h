// Content codings: gzip and deflate, decoded and encoded in bounded steps, so that a large body
// does not delay other connections. Private to net/http. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/net/buffer_pool.h"

namespace gpulet::net::http {

// Pooled memory for a body of unknown length.
class GrowingMemory {
 public:
  GrowingMemory(BufferPool& buffers, std::size_t max_bytes)
      : buffers_(&buffers), max_bytes_(max_bytes) {}

  void set_limit(std::size_t max_bytes) { max_bytes_ = max_bytes; }
  // Memory for more bytes, never empty. Fails with invalid (the limit) or overloaded (the pool's).
  [[nodiscard]] Result<std::span<std::byte>> space();
  // The first `bytes` of space() were written. REQUIRES: not more than its size.
  void filled(std::size_t bytes) { size_ += bytes; }
  // Fails as space().
  [[nodiscard]] Status append(std::span<const std::byte> bytes);

  [[nodiscard]] std::size_t size() const { return size_; }
  // Returns all bytes and starts over.
  [[nodiscard]] Bytes take();

 private:
  BufferPool* buffers_;
  std::size_t max_bytes_;
  MutableBytes memory_;
  std::size_t size_ = 0;
};

[[nodiscard]] std::size_t total_bytes(const std::vector<Bytes>& parts);

enum class Coding : std::uint8_t { identity, gzip, deflate };

[[nodiscard]] std::string_view to_string(Coding coding);
// Parses a Content-Encoding; empty text is identity. Empty for an unknown coding or several.
[[nodiscard]] std::optional<Coding> parse_coding(std::string_view content_encoding);
// The preferred coding of an Accept-Encoding; identity where it accepts none of these.
[[nodiscard]] Coding preferred_coding(std::string_view accept_encoding);

enum class Progress : std::uint8_t { more, done, failed };

struct ZlibStream;

class Inflation {
 public:
  // REQUIRES: coding is not identity.
  Inflation(Coding coding, Bytes encoded, std::size_t max_bytes, BufferPool& buffers);
  ~Inflation();
  Inflation(const Inflation&) = delete;
  Inflation& operator=(const Inflation&) = delete;

  // Decodes a bounded number of bytes.
  [[nodiscard]] Progress step();
  // REQUIRES: step() returned done.
  [[nodiscard]] Bytes take() { return output_.take(); }
  // After `failed`: malformed (invalid data), invalid (longer than max_bytes) or overloaded.
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  [[nodiscard]] Progress fail(Status failure);
  [[nodiscard]] Progress fail_in_zlib();

  Coding coding_;
  Bytes encoded_;
  std::size_t taken_ = 0;
  GrowingMemory output_;
  Status failure_;
  std::unique_ptr<ZlibStream> stream_;
};

class Deflation {
 public:
  // REQUIRES: coding is not identity.
  Deflation(Coding coding, std::vector<Bytes> plain, BufferPool& buffers);
  ~Deflation();
  Deflation(const Deflation&) = delete;
  Deflation& operator=(const Deflation&) = delete;

  // Encodes a bounded number of bytes. Fails if the result is not smaller or there is no memory;
  // the body can then be sent unencoded.
  [[nodiscard]] Progress step();
  [[nodiscard]] Bytes take() { return output_.take(); }                        // after `done`
  [[nodiscard]] std::vector<Bytes> take_plain() { return std::move(plain_); }  // after `failed`

 private:
  std::vector<Bytes> plain_;
  std::size_t part_ = 0;
  std::size_t offset_ = 0;  // in plain_[part_]
  GrowingMemory output_;
  std::unique_ptr<ZlibStream> stream_;
};

}  // namespace gpulet::net::http
