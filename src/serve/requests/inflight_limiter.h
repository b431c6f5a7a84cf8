// InflightLimiter: bounds the requests that the frontend holds. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gpulet/base/status.h"
#include "gpulet/serve/values/frontend_options.h"

namespace gpulet::serve {

// Bounds the number of requests that clients have in flight, and the bytes of their inputs.
class InflightLimiter {
 public:
  explicit InflightLimiter(InflightLimits limits)
      : limits_(limits), counts_(std::make_shared<Counts>()) {}

  // Counts a request for as long as it or a copy of it lives.
  using Permit = std::shared_ptr<const void>;
  // Fails (overloaded), naming the limit.
  [[nodiscard]] Result<Permit> enter(std::size_t bytes);

  [[nodiscard]] std::uint64_t requests() const { return counts_->requests; }
  [[nodiscard]] std::uint64_t bytes() const { return counts_->bytes; }

 private:
  struct Counts {
    std::uint64_t requests = 0;
    std::uint64_t bytes = 0;
  };

  InflightLimits limits_;
  std::shared_ptr<Counts> counts_;  // shared with every permit
};

}  // namespace gpulet::serve
