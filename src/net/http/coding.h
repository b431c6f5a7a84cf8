// Content codings: gzip and deflate, taken off and put on in steps, so that a large body does not
// hold up everybody else. Private to net/http. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/net/buffer_pool.h"
#include "net/http/growing_memory.h"

namespace gpulet::net::http {

enum class Coding : std::uint8_t { identity, gzip, deflate };

[[nodiscard]] std::string_view to_string(Coding coding);
// Of a Content-Encoding; an empty one is identity. Nothing where it is unknown, or more than one.
[[nodiscard]] std::optional<Coding> parse_coding(std::string_view content_encoding);
// The one that an Accept-Encoding likes best; identity where it asks for none of ours.
[[nodiscard]] Coding preferred_coding(std::string_view accept_encoding);

enum class Progress : std::uint8_t { more, done, failed };

class Inflation {
 public:
  // REQUIRES: coding is not identity.
  Inflation(Coding coding, Bytes encoded, std::size_t max_bytes, BufferPool& buffers);
  ~Inflation();
  Inflation(const Inflation&) = delete;
  Inflation& operator=(const Inflation&) = delete;

  // A bounded piece of the work.
  [[nodiscard]] Progress step();
  // After `done`.
  [[nodiscard]] Bytes take() { return output_.take(); }
  // After `failed`: malformed (not of the coding), invalid (longer than max_bytes), overloaded.
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  struct Stream;
  [[nodiscard]] Progress fail(Status failure);
  [[nodiscard]] Progress fail_of_zlib();

  Coding coding_;
  Bytes encoded_;
  std::size_t taken_ = 0;
  GrowingMemory output_;
  Status failure_;
  std::unique_ptr<Stream> stream_;
};

class Deflation {
 public:
  // REQUIRES: coding is not identity.
  Deflation(Coding coding, std::vector<Bytes> plain, BufferPool& buffers);
  ~Deflation();
  Deflation(const Deflation&) = delete;
  Deflation& operator=(const Deflation&) = delete;

  // A bounded piece of the work. Fails where the result is not smaller, or there is no memory:
  // then the plain parts are as good.
  [[nodiscard]] Progress step();
  [[nodiscard]] Bytes take() { return output_.take(); }                        // after `done`
  [[nodiscard]] std::vector<Bytes> take_plain() { return std::move(plain_); }  // after `failed`

 private:
  struct Stream;

  std::vector<Bytes> plain_;
  std::size_t part_ = 0;
  std::size_t offset_ = 0;  // in it
  GrowingMemory output_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace gpulet::net::http
