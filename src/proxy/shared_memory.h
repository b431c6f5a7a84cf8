// The memory that is shared with the backend, mapped for as long as this lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpulet/core/status.h"

namespace gpulet::proxy {

class SharedMemory {
 public:
  // Fails with invalid where the file is smaller than that, or no file.
  [[nodiscard]] static Result<SharedMemory> map(int fd, std::uint64_t bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit SharedMemory(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

}  // namespace gpulet::proxy
