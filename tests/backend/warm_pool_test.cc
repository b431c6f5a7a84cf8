#include "gpulet/serve/warm_pool.h"

#include <gtest/gtest.h>

namespace gpulet::serve {
namespace {

using namespace std::chrono_literals;

constexpr Time kStart = Time(1h);
constexpr bool kIdle = true;

WarmPool pool_of(std::uint32_t wanted) {
  WarmPoolOptions options;
  options.wanted = wanted;
  return WarmPool(options);
}

void fill(WarmPool& pool, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    pool.started();
    pool.idle();
  }
}

TEST(WarmPool, FillsItselfOneAfterAnotherAtOnce) {
  auto pool = pool_of(2);
  EXPECT_TRUE(pool.wants_another(kStart));
  pool.started();
  EXPECT_FALSE(pool.wants_another(kStart)) << "one is being started";
  EXPECT_EQ(pool.next_look(), kNever);
  pool.idle();
  EXPECT_TRUE(pool.wants_another(kStart));
  fill(pool, 1);
  EXPECT_FALSE(pool.wants_another(kStart + 1h));
  EXPECT_EQ(pool.next_look(), kNever);
}

TEST(WarmPool, OfNoneWantsNone) { EXPECT_FALSE(pool_of(0).wants_another(kStart)); }

TEST(WarmPool, ReplacesWhatWasTakenOnceAllHaveLoadedAndAMomentHasPassed) {
  auto pool = pool_of(2);
  fill(pool, 2);
  pool.loading(true, kStart);
  pool.taken(kIdle);
  EXPECT_FALSE(pool.wants_another(kStart + 10s));
  EXPECT_EQ(pool.next_look(), kNever);
  pool.loading(false, kStart + 10s);
  EXPECT_FALSE(pool.wants_another(kStart + 10s));
  EXPECT_EQ(pool.next_look(), kStart + 11s);
  EXPECT_TRUE(pool.wants_another(kStart + 11s));
}

TEST(WarmPool, MayHaveOneTakenThatIsStillStarting) {
  auto pool = pool_of(1);
  pool.started();
  pool.taken(!kIdle);
  EXPECT_TRUE(pool.wants_another(kStart));
}

TEST(WarmPool, WaitsLongerWithEveryDeathUntilThereWereNoneForAWhile) {
  auto pool = pool_of(1);
  Time now = kStart;
  for (const Duration delay : {Duration(100ms), Duration(200ms), Duration(400ms)}) {
    pool.started();
    pool.died(!kIdle, now);
    EXPECT_EQ(pool.next_look(), now + delay);
    EXPECT_FALSE(pool.wants_another(now));
    now = pool.next_look();
    EXPECT_TRUE(pool.wants_another(now));
  }
  for (int i = 0; i < 20; ++i) {
    fill(pool, 1);
    pool.died(kIdle, now);
    EXPECT_LE(pool.next_look(), now + 30s);
    now = pool.next_look();
  }
  now += 2min;
  fill(pool, 1);
  pool.died(kIdle, now);
  EXPECT_EQ(pool.next_look(), now + 100ms);
}

}  // namespace
}  // namespace gpulet::serve
