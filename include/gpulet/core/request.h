// The values that travel through the engine: a request, the batch it joins, the batch's result.
//
// Layout of tensor bytes: a request carries its inputs one after another in the order the model
// declares. A batch of n requests carries, for the first input, the n slices of the requests, then
// for the second, and so on, so that every input is one contiguous [n, ...] tensor at the executor.
// Outputs come back in the same layout. Values; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/process_end.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"

namespace gpulet {

// One request's way through the system, filled on the way. Time() (zero) means "did not get there".
struct RequestTrace {
  Time arrived{};                // frontend: the request was read
  Time dispatched{};             // frontend: its batch was sent
  Time completed{};              // frontend: its batch's result arrived
  Time answered{};               // frontend: its answer was given
  Duration queued_at_backend{};  // backend and proxy: from the batch's arrival to the start of its
                                 // execution
  Duration executed{};           // proxy: execution of the whole batch
  std::uint32_t batch_size = 0;
  GpuletId gpulet;
  BatchId batch;  // the last one it was in

  friend bool operator==(const RequestTrace&, const RequestTrace&) = default;
};

struct Request {
  RequestId id;
  ClientId client;
  std::uint64_t tag = 0;  // the client's own number for it, returned with the reply
  Time deadline{};
  // From when on a result counts as late; before the deadline where the request may wait for its
  // model to wake.
  Time late_after = kNever;
  bool own_deadline = false;   // the client gave it: nothing makes it later
  std::uint32_t priority = 0;  // as asked for: 1 is the highest; 0: none (core/queue_rules.h)
  // How long after its deadline a result is still delivered. Then the request is answered without
  // one, even while its batch runs. kNoLimit: whoever asked has a deadline of its own.
  Duration grace{};
  std::uint32_t attempts = 0;  // batches it was part of that died under it
  // Of these, how many ended or hung their process. From the first on it runs alone.
  std::uint32_t crashes = 0;
  Duration queue_timeout{};  // as asked for; zero: none (core/queue_rules.h)
  Bytes input;
  RequestTrace trace;
  std::shared_ptr<const void> place{};  // among those under way: given up with the request

  static constexpr Duration kNoLimit = Duration::max();

  // An answer behind it is late.
  [[nodiscard]] Time due() const { return deadline < late_after ? deadline : late_after; }
  // The last moment for an answer; kNever: there is none.
  [[nodiscard]] Time answer_by() const { return grace == kNoLimit ? kNever : deadline + grace; }
};

// A batch for one gpulet. Clocks of two machines are not compared: windows travel as time left.
struct Batch {
  BatchId id;
  GpuletId gpulet;
  std::string model;
  std::uint32_t count = 0;  // requests in it
  Duration start_within{};  // from sending; a proxy that cannot start by then refuses with too_late
  Duration expected_duration{};
  std::vector<Bytes> inputs;  // slices in the layout above
};

struct BatchResult {
  BatchId id;
  Status status;      // not ok: the whole batch did not run (too_late, not_found, overloaded,
                      // unavailable, internal)
  Bytes outputs;      // all outputs in the layout above
  Duration queued{};  // from arrival at the backend to the start of execution
  Duration executed{};
  // model_crash, hung: the process that held the batch ended under it. Of a model_crash, how.
  // input: the model cannot compute what one of the requests holds.
  FailureCause cause = FailureCause::unknown;
  ProcessEnd end{};
  // The part of `queued` in which the inputs arrived: from the batch's first byte to its last.
  Duration received{};
  // When the first byte of the result arrived at the frontend; Time(): not known. Not on the wire.
  Time returning{};
};

}  // namespace gpulet
