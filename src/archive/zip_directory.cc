#include "gpulet/archive/zip_directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "gpulet/base/files.h"

namespace gpulet {
namespace {

// The format: APPNOTE.TXT of PKWARE, sections 4.3.7 to 4.5.3. Numbers are little-endian.
constexpr std::uint32_t kDirectoryEntry = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kEnd64LocatorBytes = 20;
constexpr std::size_t kMemberBytes = 30;
constexpr std::size_t kDirectoryEntryBytes = 46;
constexpr std::size_t kLongestComment = 0xffff;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the value is in a 64-bit record
constexpr std::uint16_t kExtra64 = 1;
// A model of a hundred thousand tensors has a directory of ten megabytes.
constexpr std::uint64_t kLargestDirectory = 64U << 20U;

using Block = std::vector<std::byte>;

// REQUIRES: the number is within the block.
template <typename Number>
Number number_at(const Block& block, std::size_t at) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i)
    number |= std::to_integer<std::uint64_t>(block[at + i]) << (8 * i);
  return static_cast<Number>(number);
}

Status broken(const char* why) { return {StatusCode::invalid, why}; }

Status unreadable() {
  return {StatusCode::unavailable, std::string("it cannot be read: ") + std::strerror(errno)};
}

Result<Block> block_at(int descriptor, std::uint64_t offset, std::size_t bytes) {
  Block block(bytes);
  const ssize_t got = read_at(descriptor, block, offset);
  if (got < 0) return unreadable();
  if (static_cast<std::size_t>(got) < bytes) return broken("it shrank while it was read");
  return block;
}

Result<std::uint64_t> bytes_of(int descriptor) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return unreadable();
  return static_cast<std::uint64_t>(facts.st_size);
}

struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Reads the 64-bit record, to which the locator right before the end record points.
Result<Directory> find_directory64(int descriptor, std::uint64_t end) {
  if (end < kEnd64LocatorBytes) return broken("it has no directory");
  GPULET_TRY(const auto locator,
             block_at(descriptor, end - kEnd64LocatorBytes, kEnd64LocatorBytes));
  const auto record_at = number_at<std::uint64_t>(locator, 8);
  const bool is_before = end >= kEnd64Bytes && record_at <= end - kEnd64Bytes;
  if (number_at<std::uint32_t>(locator, 0) != kEnd64Locator || !is_before)
    return broken("it has no directory");
  GPULET_TRY(const auto record, block_at(descriptor, record_at, kEnd64Bytes));
  if (number_at<std::uint32_t>(record, 0) != kEnd64) return broken("it has no directory");
  return Directory{number_at<std::uint64_t>(record, 48), number_at<std::uint64_t>(record, 40)};
}

Result<Directory> find_directory(int descriptor, std::uint64_t file_bytes) {
  const auto tail_bytes =
      static_cast<std::size_t>(std::min<std::uint64_t>(file_bytes, kEndBytes + kLongestComment));
  GPULET_TRY(const Block block, block_at(descriptor, file_bytes - tail_bytes, tail_bytes));
  for (std::size_t at = tail_bytes - kEndBytes + 1; at-- > 0;) {
    if (number_at<std::uint32_t>(block, at) != kEnd) continue;
    if (at + kEndBytes + number_at<std::uint16_t>(block, at + 20) != tail_bytes) continue;
    const auto bytes = number_at<std::uint32_t>(block, at + 12);
    const auto offset = number_at<std::uint32_t>(block, at + 16);
    if (bytes != kIn64 && offset != kIn64) return Directory{offset, bytes};
    return find_directory64(descriptor, file_bytes - tail_bytes + at);
  }
  return broken("it has no directory");
}

// Replaces the values of an entry that are in its 64-bit field, which has those alone: the size
// before compression, the stored size, the offset.
void widen(const Block& directory, std::size_t extra, std::size_t extra_bytes, std::uint32_t whole,
           ZipMember& member) {
  const std::size_t end = extra + extra_bytes;
  while (extra + 4 <= end) {
    const std::size_t field_end =
        std::min<std::size_t>(end, extra + 4 + number_at<std::uint16_t>(directory, extra + 2));
    std::size_t at = extra + 4;
    const auto take = [&](std::uint64_t now) {
      if (now != kIn64 || at + 8 > field_end) return now;
      at += 8;
      return number_at<std::uint64_t>(directory, at - 8);
    };
    if (number_at<std::uint16_t>(directory, extra) == kExtra64) {
      (void)take(whole);
      member.bytes = take(member.bytes);
      member.header = take(member.header);
      return;
    }
    extra = field_end;
  }
}

Result<std::vector<ZipMember>> members_in(const Block& directory) {
  std::vector<ZipMember> members;
  std::size_t at = 0;
  while (at + kDirectoryEntryBytes <= directory.size()) {
    if (number_at<std::uint32_t>(directory, at) != kDirectoryEntry)
      return broken("its directory is broken");
    const std::size_t name_bytes = number_at<std::uint16_t>(directory, at + 28);
    const std::size_t extra_bytes = number_at<std::uint16_t>(directory, at + 30);
    const std::size_t rest =
        name_bytes + extra_bytes + number_at<std::uint16_t>(directory, at + 32);
    const std::size_t name_at = at + kDirectoryEntryBytes;
    if (directory.size() - name_at < rest) return broken("its directory is broken");
    ZipMember member{
        .name = {reinterpret_cast<const char*>(directory.data() + name_at), name_bytes},
        .bytes = number_at<std::uint32_t>(directory, at + 20),
        .compressed = number_at<std::uint16_t>(directory, at + 10) != 0,
        .header = number_at<std::uint32_t>(directory, at + 42)};
    widen(directory, name_at + name_bytes, extra_bytes,
          number_at<std::uint32_t>(directory, at + 24), member);
    members.push_back(std::move(member));
    at = name_at + rest;
  }
  return members;
}

}  // namespace

Result<std::vector<ZipMember>> read_zip_directory(int descriptor) {
  GPULET_TRY(const auto bytes, bytes_of(descriptor));
  if (bytes < kEndBytes) return broken("it is too short");
  GPULET_TRY(const auto head, block_at(descriptor, 0, sizeof kZipSignature));
  if (number_at<std::uint32_t>(head, 0) != kZipSignature) return broken("the signature is missing");
  GPULET_TRY(const auto directory, find_directory(descriptor, bytes));
  const auto [offset, directory_bytes] = directory;
  if (offset > bytes || directory_bytes > bytes - offset || directory_bytes > kLargestDirectory) {
    return broken("its directory is outside the file");
  }
  const auto entries = block_at(descriptor, offset, static_cast<std::size_t>(directory_bytes));
  return entries.ok() ? members_in(entries.value()) : entries.status();
}

Result<std::uint64_t> content_of(int descriptor, const ZipMember& member) {
  GPULET_TRY(const auto bytes, bytes_of(descriptor));
  const Status outside = broken("a member is outside the file");
  if (bytes < kMemberBytes || member.header > bytes - kMemberBytes) return outside;
  GPULET_TRY(const auto head, block_at(descriptor, member.header, kMemberBytes));
  if (number_at<std::uint32_t>(head, 0) != kZipSignature) return broken("a member has no header");
  const std::uint64_t content = member.header + kMemberBytes + number_at<std::uint16_t>(head, 26) +
                                number_at<std::uint16_t>(head, 28);
  if (content > bytes || member.bytes > bytes - content) return outside;
  return content;
}

}  // namespace gpulet
