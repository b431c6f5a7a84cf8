// TraceChoice: which requests are traced: every n-th that comes, and all that come within a window
// that somebody asked for. Pure value; one thread at a time.
#pragma once

#include <cstdint>

#include "gpulet/core/ids.h"
#include "gpulet/core/time.h"

namespace gpulet::serve {

class TraceChoice {
 public:
  // Every `every`-th; 0: none of itself.
  explicit TraceChoice(std::uint32_t every) : every_(every) {}

  void choose_every(std::uint32_t every) { every_ = every; }
  // Numbers the requests, from 1 on.
  [[nodiscard]] RequestId next() { return RequestId{++last_}; }
  // All that arrive from `from` on and before `until`. A window asked for before ends.
  void choose_all(Time from, Time until) {
    from_ = from;
    until_ = until;
  }
  [[nodiscard]] bool chosen(RequestId id, Time arrived) const {
    return (every_ > 0 && id.value % every_ == 0) || (arrived >= from_ && arrived < until_);
  }

 private:
  std::uint32_t every_;
  std::uint64_t last_ = 0;
  Time from_{};
  Time until_{};
};

}  // namespace gpulet::serve
