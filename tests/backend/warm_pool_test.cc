#include "backend/warm_pool.h"

#include <gtest/gtest.h>

namespace gpulet::backend::warm_pool_test {
namespace {

using namespace std::chrono_literals;

constexpr Time kStart = Time(1h);
constexpr bool kIdle = true;

WarmPool pool_of(std::uint32_t wanted) {
  WarmPoolOptions options;
  options.size = wanted;
  return WarmPool(options);
}

void fill(WarmPool& pool, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    pool.started();
    pool.idle();
  }
}

TEST(WarmPool, StartsOneProcessAfterAnother) {
  auto pool = pool_of(2);
  EXPECT_TRUE(pool.should_start(kStart));
  pool.started();
  EXPECT_FALSE(pool.should_start(kStart)) << "one is being started";
  EXPECT_EQ(pool.next_check(), kNever);
  pool.idle();
  EXPECT_TRUE(pool.should_start(kStart));
  fill(pool, 1);
  EXPECT_FALSE(pool.should_start(kStart + 1h));
  EXPECT_EQ(pool.next_check(), kNever);
}

TEST(WarmPool, OfSizeZeroStartsNone) { EXPECT_FALSE(pool_of(0).should_start(kStart)); }

TEST(WarmPool, ReplacesATakenProcessAfterLoadingAndAPause) {
  auto pool = pool_of(2);
  fill(pool, 2);
  pool.loading(true, kStart);
  pool.taken(kIdle);
  EXPECT_FALSE(pool.should_start(kStart + 10s));
  EXPECT_EQ(pool.next_check(), kNever);
  pool.loading(false, kStart + 10s);
  EXPECT_FALSE(pool.should_start(kStart + 10s));
  EXPECT_EQ(pool.next_check(), kStart + 11s);
  EXPECT_TRUE(pool.should_start(kStart + 11s));
}

TEST(WarmPool, AllowsTakingAStartingProcess) {
  auto pool = pool_of(1);
  pool.started();
  pool.taken(!kIdle);
  EXPECT_TRUE(pool.should_start(kStart));
}

TEST(WarmPool, DoublesTheDelayWithEveryDeathUntilAStableTime) {
  auto pool = pool_of(1);
  Time now = kStart;
  for (const Duration delay : {Duration(100ms), Duration(200ms), Duration(400ms)}) {
    pool.started();
    pool.died(!kIdle, now);
    EXPECT_EQ(pool.next_check(), now + delay);
    EXPECT_FALSE(pool.should_start(now));
    now = pool.next_check();
    EXPECT_TRUE(pool.should_start(now));
  }
  for (int i = 0; i < 20; ++i) {
    fill(pool, 1);
    pool.died(kIdle, now);
    EXPECT_LE(pool.next_check(), now + 30s);
    now = pool.next_check();
  }
  now += 2min;
  fill(pool, 1);
  pool.died(kIdle, now);
  EXPECT_EQ(pool.next_check(), now + 100ms);
}

}  // namespace
}  // namespace gpulet::backend::warm_pool_test
