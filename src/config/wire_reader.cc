#include "config/wire_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "gpulet/base/files.h"

namespace gpulet::config {
namespace {

// The kinds of fields; 3 and 4 are groups, which no writer of today uses.
enum class WireType : std::uint8_t { varint = 0, eight_bytes = 1, content = 2, four_bytes = 5 };

constexpr unsigned kTypeBits = 3;
constexpr unsigned kBitsPerByte = 7;
constexpr unsigned kLastShift = 63;  // of the tenth byte, which has one bit
constexpr std::byte kMoreFollow{0x80};

}  // namespace

Status unreadable(const char* why) {
  return {StatusCode::unavailable, std::string("it cannot be read: ") + why};
}

Status MemorySource::read(std::uint64_t offset, std::span<std::byte> bytes) {
  const auto part = bytes_.subspan(static_cast<std::size_t>(offset), bytes.size());
  std::copy(part.begin(), part.end(), bytes.begin());
  return {};
}

Status FileSource::read(std::uint64_t offset, std::span<std::byte> bytes) {
  const ssize_t got = read_at(descriptor_, bytes, offset);
  if (got < 0) return unreadable(std::strerror(errno));
  const bool whole = static_cast<std::size_t>(got) == bytes.size();
  return whole ? Status() : unreadable("it shrank while it was read");
}

void WireReader::fail(StatusCode code, const std::string& message) {
  if (status_.ok()) status_ = Status(code, message);
}

std::byte WireReader::byte_at(std::uint64_t offset) {
  if (offset < window_begin_ || offset - window_begin_ >= window_bytes_) {
    const auto bytes =
        static_cast<std::size_t>(std::min<std::uint64_t>(window_.size(), source_.size() - offset));
    if (Status read = source_.read(offset, std::span(window_).first(bytes)); !read.ok()) {
      fail(read.code(), read.message());
      window_bytes_ = 0;
      return {};
    }
    window_begin_ = offset;
    window_bytes_ = bytes;
  }
  return window_.at(static_cast<std::size_t>(offset - window_begin_));
}

std::uint64_t WireReader::varint(WireRange& rest) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift <= kLastShift; shift += kBitsPerByte) {
    if (rest.begin == rest.end) {
      fail(StatusCode::invalid, "a number is cut off");
      return 0;
    }
    const std::byte next = byte_at(rest.begin++);
    if (!status_.ok()) return 0;
    value |= std::to_integer<std::uint64_t>(next & ~kMoreFollow) << shift;
    if ((next & kMoreFollow) == std::byte{}) return value;
  }
  fail(StatusCode::invalid, "a number has too many bytes");
  return 0;
}

std::optional<WireField> WireReader::next(WireRange& rest) {
  if (!status_.ok() || rest.begin == rest.end) return std::nullopt;
  if (fields_left_ == 0) {
    fail(StatusCode::invalid, "it has too many fields");
    return std::nullopt;
  }
  --fields_left_;
  const std::uint64_t key = varint(rest);
  WireField field{.number = key >> kTypeBits};
  std::uint64_t skipped = 0;
  switch (static_cast<WireType>(key & ((1U << kTypeBits) - 1))) {
    case WireType::varint:
      field.value = varint(rest);
      break;
    case WireType::eight_bytes:
      skipped = sizeof(std::uint64_t);
      break;
    case WireType::four_bytes:
      skipped = sizeof(std::uint32_t);
      break;
    case WireType::content:
      skipped = varint(rest);
      field.has_content = true;
      field.content = {rest.begin, rest.begin};
      break;
    default:
      fail(StatusCode::invalid, "a field has an unknown kind");
  }
  if (field.number == 0) fail(StatusCode::invalid, "a field has the number 0");
  if (skipped > rest.size()) fail(StatusCode::invalid, "a field is cut off");
  if (!status_.ok()) return std::nullopt;
  rest.begin += skipped;
  if (field.has_content) field.content.end = rest.begin;
  return field;
}

std::string WireReader::text(const WireRange& content, std::size_t longest) {
  if (content.size() > longest) {
    fail(StatusCode::invalid, "a name has more than " + std::to_string(longest) + " bytes");
    return {};
  }
  std::string text;
  for (std::uint64_t at = content.begin; at != content.end && status_.ok(); ++at)
    text += std::to_integer<char>(byte_at(at));
  return text;
}

}  // namespace gpulet::config
