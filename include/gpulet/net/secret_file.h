// Reads small text files: certificates, keys, tokens. Blocks on file I/O.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "gpulet/base/status.h"

namespace gpulet::net {

inline constexpr std::size_t kLargestFileBytes = 1U << 20U;
inline constexpr mode_t kForeign = S_IWGRP | S_IROTH | S_IWOTH;

// Fails with not_found (missing or unreadable) or invalid (larger than 1 MiB).
[[nodiscard]] inline Result<std::string> read_text(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(kLargestFileBytes + 1, '\0');
  if (stream) stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || !stream.is_open() || (stream.fail() && !stream.eof())) {
    const std::string why = std::strerror(errno);
    return Status(StatusCode::not_found, file.string() + ": cannot be read (" + why +
                                             "); check the path and its permissions");
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kLargestFileBytes)
    return Status(StatusCode::invalid, file.string() + ": larger than 1 MiB");
  return text;
}

// The same for a file with a secret. Fails (invalid) also if users other than its owner and group
// can read it, or its group can write it.
[[nodiscard]] inline Result<std::string> read_secret(const std::filesystem::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) == 0 && (found.st_mode & kForeign) != 0) {
    return Status(StatusCode::invalid, file.string() +
                                           ": other users can read or change it; run chmod 600 " +
                                           file.string() + " (or 640 with a dedicated group)");
  }
  return read_text(file);
}

}  // namespace gpulet::net
