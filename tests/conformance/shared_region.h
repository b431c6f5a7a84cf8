// SharedRegion: POSIX shared memory that a client makes and a server is told of.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace gpulet::conformance {

class SharedRegion {
 public:
  // The key is the name and this process's id.
  SharedRegion(const std::string& name, std::size_t bytes)
      : name_(name), key_("/gpulet_" + name + "_" + std::to_string(::getpid())), size_(bytes) {
    const int file = ::shm_open(key_.c_str(), O_CREAT | O_RDWR, 0600);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0)
      throw std::runtime_error("no shared memory");
    memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (memory_ == MAP_FAILED) throw std::runtime_error("no shared memory");
  }
  SharedRegion(const std::string& name, const std::string& content)
      : SharedRegion(name, content.size()) {
    std::memcpy(memory_, content.data(), content.size());
  }
  ~SharedRegion() {
    ::munmap(memory_, size_);
    ::shm_unlink(key_.c_str());
  }
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] std::string bytes() const { return {static_cast<const char*>(memory_), size_}; }

 private:
  std::string name_;
  std::string key_;
  std::size_t size_;
  void* memory_ = nullptr;
};

}  // namespace gpulet::conformance
