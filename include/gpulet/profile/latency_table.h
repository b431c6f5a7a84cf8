// L(b, p): the measured latency of one batch of b requests of one model alone on a gpulet of p
// percent.
//
// Missing cells are interpolated where measured neighbours exist: linear in the batch between two
// measured batches of one size; between two measured sizes linear in 1/p (latency is close to
// affine in it). Nothing is invented: beyond the largest batch measured at a size, below the
// smallest size or above the largest one there is no answer (an empty optional). A batch below the
// smallest measured one costs what the smallest does. Between two sizes both neighbours must
// answer. A look-up takes some tens of nanoseconds and allocates nothing. Immutable once built; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gpulet/core/share.h"
#include "gpulet/core/status.h"

namespace gpulet::profile {

// Why a cell may be wrong, as the measurement saw it. Plans use such cells like any other.
enum class Doubt : std::uint8_t {
  none,
  busy,        // other processes used the device's cores meanwhile
  unsteady,    // its median did not become steady
  neighbours,  // it takes longer than the cells beside it allow
};
// The doubt's name as written above; "" for none.
[[nodiscard]] std::string_view to_string(Doubt doubt);

struct LatencySample {
  std::uint32_t batch = 0;
  Share share;
  double latency_ms = 0;           // where many ran back to back: the time each took
  std::optional<double> p99_ms{};  // kept and written back; plans go by latency_ms
  Doubt doubt = Doubt::none;       // kept and written back

  friend bool operator==(const LatencySample&, const LatencySample&) = default;
};

class LatencyTable {
 public:
  // Fails (invalid) on no samples, a batch of 0, a share outside 1..100, a latency that is not
  // finite and positive, or two samples for one cell whose latencies differ.
  [[nodiscard]] static Result<LatencyTable> create(std::vector<LatencySample> samples);

  // Milliseconds; empty where nothing measured answers. `batch` 0 is a bug and has no answer.
  [[nodiscard]] std::optional<double> latency_ms(std::uint32_t batch, Share share) const;

  // The same under a quota of so many percent of the device's time, which need not be a whole
  // number or lie within the measured sizes. Below the smallest one it is that one's times
  // smallest/percent: the work is the same, and so much less is done of it in a second. Above the
  // largest one, as there; nowhere less than there. REQUIRES: percent > 0.
  [[nodiscard]] std::optional<double> latency_under_quota_ms(std::uint32_t batch,
                                                             double percent) const;

  // The largest batch with an answer at that size; 0 where the size has none.
  [[nodiscard]] std::uint32_t largest_batch(Share share) const;

  // The cells as given, by size, then batch.
  [[nodiscard]] const std::vector<LatencySample>& samples() const { return samples_; }

 private:
  LatencyTable() = default;

  struct Row {  // one measured size
    Share share;
    std::vector<std::uint32_t> batches;  // ascending
    std::vector<double> latencies_ms;    // beside batches
  };
  [[nodiscard]] static std::optional<double> within_row(const Row& row, std::uint32_t batch);
  // Within the measured sizes.
  [[nodiscard]] std::optional<double> interpolated(std::uint32_t batch, double percent) const;

  std::vector<LatencySample> samples_;
  std::vector<Row> rows_;  // by ascending share
};

}  // namespace gpulet::profile
