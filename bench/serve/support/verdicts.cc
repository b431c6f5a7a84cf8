#include "bench/serve/support/verdicts.h"

#include <algorithm>
#include <cstdio>

namespace gpulet::bench {

void Verdicts::hold(bool met, const std::string& figure) {
  std::printf("%s  %s\n", met ? "ok    " : "MISSED", figure.c_str());
  std::fflush(stdout);
  if (!met) ++missed_;
}

std::string text(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  char buffer[1024];
  std::vsnprintf(buffer, sizeof(buffer), format, arguments);
  va_end(arguments);
  return buffer;
}

Outcome outcome_of(const std::vector<Stream>& streams, const TrafficResult& result, Duration from,
                   Duration until, std::uint32_t stream) {
  Outcome outcome;
  outcome.seconds = to_seconds(until - from);
  std::vector<Duration> latencies;
  for (const Sent& sent : result.requests) {
    if (sent.intended < from || sent.intended >= until) continue;
    if (stream != kAllStreams && sent.stream != stream) continue;
    ++outcome.offered;
    if (sent.fate == Fate::served) {
      ++outcome.served;
      latencies.push_back(sent.latency());
      if (sent.latency() > streams[sent.stream].slo) ++outcome.late;
    } else if (sent.fate == Fate::dropped) {
      ++outcome.dropped;
    } else {
      ++outcome.errors;
    }
  }
  std::sort(latencies.begin(), latencies.end());
  if (!latencies.empty()) {
    outcome.p50_ms = to_ms(latencies[(latencies.size() - 1) / 2]);
    outcome.p99_ms = to_ms(latencies[(latencies.size() * 99 - 1) / 100]);
  }
  return outcome;
}

}  // namespace gpulet::bench
