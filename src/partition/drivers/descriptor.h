// A file descriptor that closes itself.
#pragma once

#include <unistd.h>

#include <utility>

namespace gpulet::partition {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }

  [[nodiscard]] int get() const { return number_; }
  [[nodiscard]] bool valid() const { return number_ >= 0; }

 private:
  void close() const {
    if (number_ >= 0) ::close(number_);
  }

  int number_ = -1;
};

}  // namespace gpulet::partition
