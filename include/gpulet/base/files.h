// FileDescriptor; whole transfers between memory and open files; whole files; variables of the
// environment.
//
// Transfers go on after a signal. One that fails leaves its reason in errno. Any thread; no thread
// may change the environment.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"

namespace gpulet {

// Owns a file descriptor and closes it. Movable. One thread at a time.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = other.release();
    }
    return *this;
  }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  // Gives up ownership: the caller closes it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

// Returns the number of bytes read, which is less than asked for only at the end of the file; -1: a
// failure.
[[nodiscard]] ssize_t read_at(int descriptor, std::span<std::byte> into, std::uint64_t offset);

// Each writes all bytes, or fails.
[[nodiscard]] bool write_at(int descriptor, std::span<const std::byte> bytes, std::uint64_t offset);
[[nodiscard]] bool write_all(int descriptor, std::string_view text);

// Fails with not_found (no regular file) or invalid (not readable).
[[nodiscard]] Result<std::vector<std::byte>> read_file(const std::filesystem::path& file);

// The value of a variable of the environment; empty where it is not set.
[[nodiscard]] std::string_view environment_variable(const char* name);

}  // namespace gpulet
