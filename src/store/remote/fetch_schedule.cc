#include "store/remote/fetch_schedule.h"

#include <algorithm>
#include <limits>
#include <map>

namespace gpulet::store::remote {

void FetchSchedule::succeeded(bool polls, Time now) {
  failures_ = 0;
  due_ = polls ? now + times_.poll : kNever;
}

void FetchSchedule::failed(bool progressed, Time now) {
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  failures_ = progressed ? 1 : std::min(failures_, kMost - 1) + 1;
  Duration pause = times_.first_retry;
  for (std::uint32_t i = 1; i < failures_ && pause < times_.longest_retry; ++i) pause *= 2;
  due_ = now + std::min(pause, times_.longest_retry);
}

std::optional<std::size_t> choose_fetch(const std::vector<WaitingFetch>& fetches,
                                        std::size_t most_per_origin, Time now) {
  std::map<std::string, std::size_t> running;
  for (const WaitingFetch& fetch : fetches)
    if (fetch.running) ++running[fetch.origin];
  std::optional<std::size_t> chosen;
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    const WaitingFetch& fetch = fetches[i];
    if (fetch.running || fetch.due > now) continue;
    const auto busy = running.find(fetch.origin);
    if (busy != running.end() && busy->second >= most_per_origin) continue;
    if (!chosen || fetch.due < fetches[*chosen].due) chosen = i;
  }
  return chosen;
}

}  // namespace gpulet::store::remote
