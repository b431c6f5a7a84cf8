#include "schedule/row.h"

#include <algorithm>

namespace gpulet::schedule {

void rate_row(Row* row, double slo_ms) {
  row->most_rate = 0;
  row->least_ms = 0;
  for (std::uint32_t batch = 1; batch <= row->largest; ++batch) {
    const double latency_ms = row->latency_ms[batch - 1];
    const double held = requests_held(*row, batch, slo_ms, latency_ms) * row->processes;
    const double rate = held * 1000 / latency_ms;
    if (rate <= row->most_rate) continue;
    row->most_rate = rate;
    row->least_ms = latency_ms / held;
  }
}

}  // namespace gpulet::schedule
