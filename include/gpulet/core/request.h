// The values that travel through the engine: a request, its batch, and the batch's result.
//
// Layout of tensor bytes: a request holds its inputs one after another, in the order that the model
// declares. A batch of n requests holds the n slices of the first input, then those of the second,
// and so on, so that every input is one contiguous [n, ...] tensor at the executor. Outputs have
// the same layout. Values; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"

namespace gpulet {

// The times of one request's stages. Time() (zero): the request did not reach that stage.
struct RequestTrace {
  Time arrived{};                // frontend: the request was read
  Time dispatched{};             // frontend: its batch was sent
  Time completed{};              // frontend: its batch's result arrived
  Time answered{};               // frontend: the response was sent
  Duration queued_at_backend{};  // backend and proxy: from the batch's arrival to its execution
  Duration executed{};           // proxy: execution of the whole batch
  std::uint32_t batch_size = 0;
  GpuletId gpulet;
  BatchId batch;  // the last one

  friend bool operator==(const RequestTrace&, const RequestTrace&) = default;
};

struct Bucket;

struct Request {
  RequestId id;
  ClientId client;
  std::uint64_t tag = 0;  // the client's number for the request, returned with the response
  Time deadline{};
  // Results after this count as late. Before the deadline where the request may wait for its model
  // to wake.
  Time late_after = kNever;
  bool own_deadline = false;   // set by the client: nothing extends it
  bool forwarded = false;      // by another frontend, which keeps it until it has an answer
  bool kept = false;           // `input` is empty here: that frontend sends it to the node (Rows)
  std::uint32_t priority = 0;  // as requested: 1 is the highest; 0: not set (core/queue_rules.h)
  // How long after its deadline the request still accepts a result. After that it fails, even while
  // its batch runs. kNoLimit: the caller has a deadline of its own.
  Duration grace{};
  std::uint32_t attempts = 0;  // its batches that failed
  // The attempts in which the process crashed or hung. A request with any runs alone.
  std::uint32_t crashes = 0;
  Duration queue_timeout{};  // as requested; zero: none (core/queue_rules.h)
  Bytes input;
  // For experiments: there is no input, and the process of the model makes one of zeros.
  bool synthetic = false;
  // Of a model with dynamic dimensions (core/bucket.h): `input` has the bucket's length, and the
  // answer is cut to the request's. Null: the model has fixed shapes.
  std::shared_ptr<const Bucket> bucket{};
  std::int64_t length = 0;
  RequestTrace trace;
  std::shared_ptr<const void> permit{};  // of the in-flight limit, released with the request

  static constexpr Duration kNoLimit = Duration::max();

  // Responses after this are late.
  [[nodiscard]] Time due() const { return deadline < late_after ? deadline : late_after; }
  // The last time for a response; kNever: no limit.
  [[nodiscard]] Time answer_by() const { return grace == kNoLimit ? kNever : deadline + grace; }
};

// The requests of a batch whose inputs another frontend of the cluster sends to the node.
struct EntryRows {
  std::string entry;  // that frontend's name in its cluster
  std::uint32_t count = 0;

  friend bool operator==(const EntryRows&, const EntryRows&) = default;
};

// The slices of a batch that may lie in shared memory.
inline constexpr std::size_t kMaxSharedSlices = 4096;

// A slice of a batch in memory that its sender shares with its receiver (net::SharedMemory).
struct SharedSlice {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const SharedSlice&, const SharedSlice&) = default;
};

// A batch for one gpulet. Times are relative, because the clocks of two machines are not compared.
struct Batch {
  BatchId id;
  GpuletId gpulet;
  std::string model;
  std::uint32_t count = 0;  // requests in it
  Duration start_within{};  // from sending; a batch that cannot start by then fails with too_late
  Duration expected_duration{};
  std::vector<Bytes> inputs;  // slices in the layout above
  Term term{};                // of the frontend that leads
  // The inputs are zeros, which the gpulet's process makes; none are sent.
  bool synthetic = false;
  // Not empty: the last requests of the batch are those of these entries, one entry after another
  // (docs/cluster.md, "One trip"). `inputs` has the others alone, one whole request after another.
  std::vector<EntryRows> entries{};
  // On the wire, where the slices lie in memory that both sides share, instead of `inputs`. Empty
  // inside an engine.
  std::vector<SharedSlice> shared{};
};

inline constexpr std::size_t kMostDetailBytes = 4096;

// A request whose input could not be used, in a batch that ran.
struct FailedRow {
  std::uint32_t row = 0;  // in the outputs: its place among the requests with which the batch ran
  // For the client. invalid: its input is not what the model takes, such as a corrupt image;
  // overloaded: the batch had too many large images.
  Status why;

  friend bool operator==(const FailedRow&, const FailedRow&) = default;
};

struct BatchResult {
  BatchId id;
  // Not ok: the whole batch did not run (too_late, not_found, overloaded, unavailable, internal).
  Status status;
  Bytes outputs;      // all outputs in the layout above
  Duration queued{};  // from arrival at the backend to the start of execution
  Duration executed{};
  // model_crash and hung: the process that held the batch ended. input: the model cannot compute a
  // value in one of the requests.
  FailureCause cause = FailureCause::unknown;
  ProcessEnd end{};  // for model_crash
  // The part of `queued` in which the inputs arrived: from the batch's first byte to its last.
  Duration received{};
  // When the first byte of the result arrived at the frontend; Time(): unknown. Not on the wire.
  Time returning{};
  // Another frontend sends the gpulet's batches, or it takes none any more (status unavailable):
  // the requests are to be served in another way.
  bool elsewhere = false;
  // What the model's library said of the failure, for logs: it may show what is inside the model.
  // From the model's process, so untrusted; at most kMostDetailBytes. `status` is for the client.
  std::string detail{};
  // Places in the batch, ascending, of requests that it ran without, because their inputs did not
  // come: the entry has withdrawn the request, or sent nothing in time. `outputs` has the others.
  std::vector<std::uint32_t> withdrawn{};
  std::vector<std::uint32_t> missing{};
  // The part of `executed` in which encoded images were decoded.
  Duration decoded{};
  // These requests fail, whatever the outputs have for them. From the model's process, so
  // untrusted.
  std::vector<FailedRow> failed{};
};

}  // namespace gpulet
