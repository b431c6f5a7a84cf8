// The headroom formula, compared with a simulated queue and with the independent derivation in
// check().
#include "schedule/duty_cycle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "gpulet/base/random.h"
#include "gpulet/schedule/check.h"

namespace gpulet::schedule {
namespace {

// The fraction of `requests` Poisson arrivals that is late where rounds take 1, hold `batch`,
// follow each other without pause while the queue is not empty, and a request may wait `rounds`.
// Drops requests that are too late.
double simulated_late(std::uint32_t batch, int rounds, double mean, int requests) {
  Random random(11);
  std::deque<double> waiting;
  double next = random.exponential(1 / mean);
  double free = 0;
  int late = 0;
  int arrived = 0;
  while (arrived < requests) {
    const double start = std::max(free, waiting.empty() ? next : waiting.front());
    for (; next <= start; next += random.exponential(1 / mean)) {
      waiting.push_back(next);
      ++arrived;
    }
    while (!waiting.empty() && start - waiting.front() > rounds) {
      waiting.pop_front();
      ++late;
    }
    if (waiting.empty()) continue;
    const auto served = std::min<std::size_t>(batch, waiting.size());
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(served));
    free = start + 1;
  }
  return static_cast<double>(late) / arrived;
}

TEST(Headroom, LimitsLateRequests) {
  const HeadroomTable table;
  for (const std::uint32_t batch : {1U, 2U, 4U, 8U, 16U, 32U, 100U}) {
    for (const int rounds : {1, 2, 3, 5, 9}) {
      const double mean = table.mean(batch, rounds);
      // 15 % for the approximation beyond one round and the noise of a million arrivals.
      EXPECT_LE(simulated_late(batch, rounds, mean, 1000000), kMostLateByChance * 1.15)
          << "batch " << batch << ", rounds " << rounds;
    }
  }
}

TEST(Headroom, IsTightWhereARequestMayWaitForOneRoundOnly) {
  const HeadroomTable table;
  for (const std::uint32_t batch : {1U, 2U, 8U, 32U}) {
    EXPECT_GE(simulated_late(batch, 1, table.mean(batch, 1), 1000000), kMostLateByChance * 0.85)
        << "batch " << batch;
  }
}

TEST(Headroom, AgreesWithTheDerivationOfCheck) {
  const HeadroomTable table;
  for (std::uint32_t batch = 1; batch <= 300; ++batch) {
    for (const double rounds : {1.0, 1.9, 2.0, 4.0, 6.5, 40.0}) {
      const double mean = table.mean(batch, rounds);
      EXPECT_LE(late_by_chance(batch, rounds, mean * (1 - 1e-9)), kMostLateByChance * (1 + 1e-7))
          << "batch " << batch << ", rounds " << rounds;
      if (batch <= 64 && rounds <= 6.5) {
        EXPECT_GE(late_by_chance(batch, rounds, mean * (1 + 1e-6)), kMostLateByChance)
            << "batch " << batch << ", rounds " << rounds;
      }
    }
  }
}

TEST(Headroom, IncreasesWithTheBatchAndTheRounds) {
  const HeadroomTable table;
  for (std::uint32_t batch = 1; batch <= 200; ++batch) {
    for (int rounds = 1; rounds <= 8; ++rounds) {
      EXPECT_GT(table.mean(batch + 1, rounds), table.mean(batch, rounds));
      EXPECT_GE(table.mean(batch, rounds + 1), table.mean(batch, rounds));
      EXPECT_LT(table.mean(batch, rounds), batch);
    }
  }
  EXPECT_EQ(table.mean(8, 0.9), 0);
  EXPECT_EQ(table.mean(0, 3), 0);
}

}  // namespace
}  // namespace gpulet::schedule
