// What became of every request of a run, and one model's row of the result.
//
// offered = served + dropped + errors. Dropped: the server refused it, too late or overloaded.
// Errors: every other failure, an answer that never came and a connection that was lost. Late
// requests are among the served: they were answered after the SLO, counted from the time at which
// they were meant to be sent. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/load/percentile.h"

namespace gpulet::load {

// One request, once its fate is known. Times are counted from the start of the run.
struct RequestRecord {
  std::size_t model = 0;  // its place in the workload
  Time intended{};        // when it was meant to be sent; a closed loop means "as soon as it could"
  std::optional<Time> sent{};  // empty: it never was, see status
  Time settled{};              // when the answer, or the certainty of none, arrived
  Status status{};
  bool refused_by_server =
      false;  // status came in a reply; false where the generator found the failure itself
  std::uint32_t batch_size = 0;
  Duration queued{};
  Duration executed{};
  std::optional<bool> correct{};  // where the input has a label and an answer came

  [[nodiscard]] Duration latency() const { return settled - intended; }
};

struct ModelRow {
  std::string name;
  std::uint64_t offered = 0;
  std::uint64_t served = 0;
  std::uint64_t dropped = 0;
  std::uint64_t late = 0;
  std::uint64_t errors = 0;
  std::uint64_t unsent =
      0;  // of the errors: never sent, for want of a connection or by the outstanding limit
  std::optional<double> p50_ms;  // of the served; empty where none was
  std::optional<double> p99_ms;
  double slo_ms = 0;
  double violation = 0;            // (late + dropped + errors) / offered; 0 where none was offered
  std::optional<double> accuracy;  // of the served; where inputs have labels
  // Why requests were dropped or failed: the first message of each code, with how often the code
  // came.
  struct Reason {
    std::uint64_t count = 0;
    std::string first_message;
    friend bool operator==(const Reason&, const Reason&) = default;
  };
  std::map<StatusCode, Reason> reasons;

  friend bool operator==(const ModelRow&, const ModelRow&) = default;
};

[[nodiscard]] double violation_of(std::uint64_t late, std::uint64_t dropped, std::uint64_t errors,
                                  std::uint64_t offered);

// Counts one model's requests.
class Tally {
 public:
  Tally(std::string name, Duration slo, bool labelled);

  void add(const RequestRecord& record);

  // The counts so far, without percentiles and ratios: cheap.
  [[nodiscard]] const ModelRow& counts() const { return counts_; }
  [[nodiscard]] ModelRow row() const;

 private:
  ModelRow counts_;
  Duration slo_;
  bool labelled_;
  std::uint64_t correct_ = 0;
  Samples latencies_ms_;
};

}  // namespace gpulet::load
