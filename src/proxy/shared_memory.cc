#include "proxy/shared_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace gpulet::proxy {
namespace {

Status unusable(const std::string& why) { return {StatusCode::invalid, "shared memory: " + why}; }

}  // namespace

Result<SharedMemory> SharedMemory::map(int fd, std::uint64_t bytes) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return unusable(std::generic_category().message(errno));
  // Touching a page beyond the file's end would be a SIGBUS in the middle of a batch.
  if (static_cast<std::uint64_t>(file.st_size) < bytes) {
    return unusable("has " + std::to_string(file.st_size) + " bytes; " + std::to_string(bytes) +
                    " were announced");
  }
  if (bytes == 0) return unusable("of 0 bytes was announced");
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    return unusable("cannot be mapped: " + std::generic_category().message(errno));
  }
  return SharedMemory({static_cast<std::byte*>(address), bytes});
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace gpulet::proxy
