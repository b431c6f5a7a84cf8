// UnderWay: how many requests of clients are here at once, over all models, connections and
// protocols, and how many bytes of inputs they hold. It bounds both. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gpulet/core/status.h"

namespace gpulet::serve {

struct UnderWayLimits {
  std::uint32_t requests = 65536;
  std::uint64_t bytes = 2048ULL << 20U;  // of their inputs together
};

class UnderWay {
 public:
  explicit UnderWay(UnderWayLimits limits)
      : limits_(limits), counted_(std::make_shared<Counted>()) {}

  // A request's place among them, for as long as it or a copy of it lives.
  using Place = std::shared_ptr<const void>;
  // Fails with overloaded, naming the limit.
  [[nodiscard]] Result<Place> enter(std::size_t bytes);

  [[nodiscard]] std::uint64_t requests() const { return counted_->requests; }
  [[nodiscard]] std::uint64_t bytes() const { return counted_->bytes; }

 private:
  struct Counted {
    std::uint64_t requests = 0;
    std::uint64_t bytes = 0;
  };
  class Entry;

  UnderWayLimits limits_;
  std::shared_ptr<Counted> counted_;  // with every place
};

}  // namespace gpulet::serve
