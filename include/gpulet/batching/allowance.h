// How much later than predicted a gpulet's batches come back: transfers, jitter, and a device
// slower than its profile. A smoothed mean and deviation, as TCP keeps for round trips (RFC 6298).
// Pure value; one thread at a time.
#pragma once

#include "gpulet/core/time.h"

namespace gpulet::batching {

class Allowance {
 public:
  // A batch came back so much after its predicted end; negative: before it.
  void observe(Duration error);

  // What to add to a prediction, so that nearly all batches keep it. At least 0.5 ms, and at most 2
  // ms and a quarter of the `execution` in question: one long stall must not make everything look
  // hopeless, or nothing would be sent any more to learn from.
  [[nodiscard]] Duration for_execution(Duration execution) const;

 private:
  Duration mean_{};
  Duration deviation_{};
};

}  // namespace gpulet::batching
