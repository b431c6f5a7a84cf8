// The directory of a zip archive, read from an open file with pread: what is in the archive, and
// where. Nothing is unpacked. Blocking file I/O; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/base/status.h"

namespace gpulet {

// The first four bytes of an archive that has a member.
inline constexpr std::uint32_t kZipSignature = 0x04034b50;

struct ZipMember {
  std::string name;
  std::uint64_t bytes = 0;  // as stored in the archive
  bool compressed = false;
  std::uint64_t header = 0;  // where the member begins in the file
};

// Fails with invalid, where the message says in a few words what is wrong with the archive, and
// with unavailable where the file cannot be read. Reads at most 64 MB.
[[nodiscard]] Result<std::vector<ZipMember>> read_zip_directory(int descriptor);

// Where the bytes of the member begin in the file: they are within it. Fails as
// read_zip_directory().
[[nodiscard]] Result<std::uint64_t> content_of(int descriptor, const ZipMember& member);

}  // namespace gpulet
