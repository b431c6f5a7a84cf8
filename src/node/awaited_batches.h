// AwaitedBatches: batches whose inputs come from several frontends (docs/cluster.md, "One trip").
//
// The gpulet's owner announces a batch and names the entries that have its last requests. Each
// entry sends the inputs of its own once (Rows). A batch is ready when all entries have sent, or
// are gone, or have had their time; it then runs with the inputs that are here.
//
// Inputs count only if an owner announced them, if they come from the entry that the batch names,
// and if they have exactly the announced size. They may come before the announcement: then they are
// held, within bounds for each entry and for a short time. Pure; one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/node/backend_core.h"

namespace gpulet::node {

// An owner has two batches at a gpulet at a time, and a new owner may announce while the former
// one's are still awaited.
inline constexpr std::size_t kMostAwaited = 4;  // of one gpulet
// How long a batch waits for inputs. It covers a message from the owner to the entry and one from
// there; larger inputs get more time.
inline constexpr Duration kRowsWithin = std::chrono::milliseconds(200);
inline constexpr double kLeastRowBytesPerSecond = 50e6;
// What is left after it of the time within which the batch must start, for its process to start it.
// No more than half of that time.
inline constexpr Duration kToStart = std::chrono::milliseconds(2);
// Limits of an entry's inputs that arrive before the owner's Batch. Both are sent at the same time,
// so few do unless the owner's connection is slower.
inline constexpr std::size_t kMostEarlyBytes = std::size_t{64} << 20U;
inline constexpr std::size_t kMostEarlyRows = 64;  // messages
inline constexpr Duration kEarlyFor = std::chrono::seconds(1);

// A batch that waits no longer.
struct GatheredBatch {
  FrontendId owner;
  // `batch.count` and `batch.inputs` are those of the requests whose inputs are here; the latter
  // one whole request after another. May be none. `memory`: has all of them; empty: they are
  // elsewhere.
  BatchArrived arrived;
  std::vector<std::uint32_t> withdrawn;  // as in BatchResult
  std::vector<std::uint32_t> missing;
};

class AwaitedBatches {
 public:
  [[nodiscard]] bool empty() const { return batches_.empty(); }

  // ---- announcements

  // Fails (invalid, overloaded) where add() must not be called: more entries' requests than the
  // batch has, other inputs than those of the rest, another batch of that owner and number, or too
  // many of the gpulet. `row_bytes`: of the inputs of one request.
  [[nodiscard]] Status check(FrontendId owner, const Batch& batch, std::size_t row_bytes) const;
  // `entries`: the connection of each of Batch::entries; empty: it has none, and nothing is awaited
  // from it. REQUIRES: check().
  void add(FrontendId owner, BatchArrived arrived, std::size_t row_bytes,
           const std::vector<std::optional<FrontendId>>& entries, Time now);
  // A batch of the owner with that number is not going to run: its inputs are not held.
  void refuse(FrontendId owner, BatchId batch);

  // ---- inputs

  // Whether to receive inputs of so many bytes. `owner`: the connection of Rows::owner.
  [[nodiscard]] bool wants(FrontendId from, FrontendId owner, const Rows& rows,
                           std::size_t bytes) const;
  // Their place in BatchArrived::memory. Empty: there is none. REQUIRES: wants().
  [[nodiscard]] MutableBytes place_of(FrontendId from, FrontendId owner, const Rows& rows) const;
  void take(FrontendId from, FrontendId owner, const Rows& rows, Time now);

  // ---- connections

  // Nothing more comes from it, and nothing can be sent to it.
  void disconnected(FrontendId frontend);

  // ---- time

  // Removes and returns the batches that are complete, or have waited long enough.
  [[nodiscard]] std::vector<GatheredBatch> take_ready(Time now);
  // When take_ready() is due without a further event.
  [[nodiscard]] Time next() const;

 private:
  using Key = std::pair<FrontendId, BatchId>;  // the owner's connection, and its number
  struct Part {                                // the requests of one entry
    FrontendId entry;
    std::uint32_t first = 0;  // their places in the batch
    std::uint32_t count = 0;
    bool awaited = true;
  };
  struct Awaited {
    BatchArrived arrived;
    std::size_t row_bytes = 0;
    std::vector<Part> parts;
    std::vector<std::optional<Bytes>> rows;  // by place
    std::vector<bool> withdrawn;             // by place
    Time until{};

    [[nodiscard]] Part* part_of(FrontendId entry);
    [[nodiscard]] const Part* part_of(FrontendId entry) const;
    [[nodiscard]] bool complete() const;
    // All inputs are in `arrived.memory`.
    [[nodiscard]] bool in_place() const;
  };
  struct Early {
    FrontendId from;
    Key key;
    std::vector<std::uint32_t> present;
    Bytes inputs;
    Time until{};
  };

  [[nodiscard]] static bool fits(const Part& part, const std::vector<std::uint32_t>& present,
                                 std::size_t bytes, std::size_t row_bytes);
  // Takes over what one entry sent: nothing of it unless it fits.
  static void fill(Awaited& batch, Part& part, const std::vector<std::uint32_t>& present,
                   const Bytes& inputs);
  [[nodiscard]] static GatheredBatch gather(FrontendId owner, Awaited&& batch);
  [[nodiscard]] bool has_ended(const Key& key) const;
  [[nodiscard]] bool has_room_for_early(FrontendId from, std::size_t bytes) const;
  void note_ended(const Key& key);

  std::map<Key, Awaited> batches_;
  std::list<Early> early_;  // by time
  std::deque<Key> ended_;   // lately; inputs for them come too late
};

}  // namespace gpulet::node
