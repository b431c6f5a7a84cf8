#include "net/secret_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace gpulet::net {
namespace {

constexpr std::size_t kLargestBytes = 1U << 20U;
constexpr mode_t kForeign = S_IWGRP | S_IROTH | S_IWOTH;

}  // namespace

Result<std::string> read_text(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(kLargestBytes + 1, '\0');
  if (stream) stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || !stream.is_open() || (stream.fail() && !stream.eof())) {
    const std::string why = std::strerror(errno);
    return Status(StatusCode::not_found, file.string() + ": cannot be read (" + why +
                                             "); is the path right, and may this user read it?");
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kLargestBytes)
    return Status(StatusCode::invalid, file.string() + ": is larger than 1 MiB");
  return text;
}

Result<std::string> read_secret(const std::filesystem::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) == 0 && (found.st_mode & kForeign) != 0) {
    return Status(StatusCode::invalid, file.string() +
                                           ": others than its owner may read or change it; run "
                                           "chmod 600 " +
                                           file.string() + " (or 640 for a group of its own)");
  }
  return read_text(file);
}

}  // namespace gpulet::net
