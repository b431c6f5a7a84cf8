#include "gpulet/base/files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <system_error>

namespace gpulet {
namespace {

// Calls move(done) until `bytes` are moved, or there are no more. Returns how many, or -1.
template <typename Move>
ssize_t move_all(std::size_t bytes, const Move& move) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t moved = move(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return -1;
    if (moved == 0) {
      errno = EIO;  // the reason of a write that ends early
      break;
    }
    done += static_cast<std::size_t>(moved);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

ssize_t read_at(int descriptor, std::span<std::byte> into, std::uint64_t offset) {
  return move_all(into.size(), [&](std::size_t done) {
    return ::pread(descriptor, into.data() + done, into.size() - done,
                   static_cast<off_t>(offset + done));
  });
}

bool write_at(int descriptor, std::span<const std::byte> bytes, std::uint64_t offset) {
  return move_all(bytes.size(), [&](std::size_t done) {
           return ::pwrite(descriptor, bytes.data() + done, bytes.size() - done,
                           static_cast<off_t>(offset + done));
         }) == static_cast<ssize_t>(bytes.size());
}

bool write_all(int descriptor, std::string_view text) {
  return move_all(text.size(), [&](std::size_t done) {
           return ::write(descriptor, text.data() + done, text.size() - done);
         }) == static_cast<ssize_t>(text.size());
}

Result<std::vector<std::byte>> read_file(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    return Status(StatusCode::not_found, file.string() + ": is not a file; check the path");
  std::vector<std::byte> bytes(std::filesystem::file_size(file, error));
  std::ifstream stream(file, std::ios::binary);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (error || !stream)
    return Status(StatusCode::invalid, file.string() + ": cannot be read; check its permissions");
  return bytes;
}

std::string_view environment_variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
}

}  // namespace gpulet
