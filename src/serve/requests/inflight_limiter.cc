#include "serve/requests/inflight_limiter.h"

#include <fmt/format.h>

namespace gpulet::serve {

Result<InflightLimiter::Permit> InflightLimiter::enter(std::size_t bytes) {
  if (counts_->requests >= limits_.requests) {
    return Status(StatusCode::overloaded,
                  fmt::format("{} requests are in flight here, which is the limit (max_requests); "
                              "send slower",
                              counts_->requests));
  }
  if (bytes > limits_.bytes || counts_->bytes > limits_.bytes - bytes) {
    return Status(StatusCode::overloaded,
                  fmt::format("{} bytes of inputs are held here, and {} more would be above the "
                              "limit of {} (max_buffered_mb); send slower",
                              counts_->bytes, bytes, limits_.bytes));
  }
  ++counts_->requests;
  counts_->bytes += bytes;
  return Permit(counts_.get(), [counts = counts_, bytes](const void* /*counts*/) {
    --counts->requests;
    counts->bytes -= bytes;
  });
}

}  // namespace gpulet::serve
