// WireReader: reads the fields of protobuf messages from a file or from memory, without a schema.
// The first failure stays: from then on there are no more fields. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "gpulet/base/status.h"

namespace gpulet::config {

// Bytes with a known size.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  // Reads exactly these bytes. REQUIRES: they lie within size(). Fails with unavailable.
  [[nodiscard]] virtual Status read(std::uint64_t offset, std::span<std::byte> bytes) = 0;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }
  [[nodiscard]] Status read(std::uint64_t offset, std::span<std::byte> bytes) override;

 private:
  std::span<const std::byte> bytes_;
};

// An open file, which outlives the source.
class FileSource final : public ByteSource {
 public:
  FileSource(int descriptor, std::uint64_t size) : descriptor_(descriptor), size_(size) {}
  [[nodiscard]] std::uint64_t size() const override { return size_; }
  [[nodiscard]] Status read(std::uint64_t offset, std::span<std::byte> bytes) override;

 private:
  int descriptor_;
  std::uint64_t size_;
};

// The failure to read a file: unavailable.
[[nodiscard]] Status unreadable(const char* why);

// A part of the source: a message, or what remains of it.
struct WireRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t size() const { return end - begin; }
};

struct WireField {
  std::uint64_t number = 0;
  bool has_content = false;  // of variable length: text, bytes or a message
  std::uint64_t value = 0;   // of a number
  WireRange content{};
};

class WireReader {
 public:
  // Reads at most that many fields.
  WireReader(ByteSource& source, std::uint64_t most_fields)
      : source_(source), fields_left_(most_fields) {}

  [[nodiscard]] WireRange all() const { return {0, source_.size()}; }
  // Takes the first field of the rest of a message. Empty: the message has ended, or a failure.
  [[nodiscard]] std::optional<WireField> next(WireRange& rest);
  // The bytes of a text of at most `longest` bytes; a longer one is a failure.
  [[nodiscard]] std::string text(const WireRange& content, std::size_t longest);

  void fail(StatusCode code, const std::string& message);
  // invalid (the bytes are no protobuf message, or exceed a limit) or unavailable.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  [[nodiscard]] std::uint64_t varint(WireRange& rest);
  [[nodiscard]] std::byte byte_at(std::uint64_t offset);

  ByteSource& source_;
  std::uint64_t fields_left_;
  Status status_;
  // The bytes of the source from window_begin_ on. Small, because most of a file is skipped.
  std::array<std::byte, 1024> window_{};
  std::uint64_t window_begin_ = 0;
  std::size_t window_bytes_ = 0;
};

}  // namespace gpulet::config
