// FetchSchedule: when a file is fetched or looked for again. choose_fetch(): which of several
// begins next. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/time.h"

namespace gpulet::store::remote {

struct FetchTimes {
  Duration poll{};           // from a success to the next look
  Duration first_retry{};    // after a failure; doubled after each further one ...
  Duration longest_retry{};  // ... up to this
};

class FetchSchedule {
 public:
  explicit FetchSchedule(const FetchTimes& times) : times_(times) {}

  // The next attempt; at once at first.
  [[nodiscard]] Time due() const { return due_; }
  [[nodiscard]] std::uint32_t failures() const { return failures_; }  // in a row
  // `polls`: the store can tell cheaply whether it has a new version. Otherwise only soon() helps.
  void succeeded(bool polls, Time now);
  // `progressed`: some of the file came, so the store is there and the pause is the first one.
  void failed(bool progressed, Time now);
  void soon(Time now) { due_ = now; }

 private:
  FetchTimes times_;
  Time due_ = Time::min();
  std::uint32_t failures_ = 0;
};

struct WaitingFetch {
  Time due{};
  std::string origin;  // Url::origin()
  bool running = false;
};

// The index of the fetch to begin now: the one that is due longest and whose origin has fewer than
// `most_per_origin` running. A store that hangs thus cannot keep all threads from the others.
// Empty: none.
[[nodiscard]] std::optional<std::size_t> choose_fetch(const std::vector<WaitingFetch>& fetches,
                                                      std::size_t most_per_origin, Time now);

}  // namespace gpulet::store::remote
