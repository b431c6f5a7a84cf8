// Open files that come over a Unix socket.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::proxy {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

inline constexpr std::size_t kMostDescriptors = 3;  // of one message

struct ReceivedDescriptors {
  bool closed = false;  // the peer has closed its end, or sent a message without a byte
  std::vector<Descriptor> descriptors{};
};

// The next message of that socket, which must be of one byte and so many descriptors, at most
// kMostDescriptors. Does not wait unless told to. Fails with malformed (there is no message, or
// something else is in it; what came with it is closed) or unavailable (the socket failed).
[[nodiscard]] Result<ReceivedDescriptors> receive_descriptors(int socket, std::size_t count,
                                                              bool waits);

}  // namespace gpulet::proxy
