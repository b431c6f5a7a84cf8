#include "gpulet/net/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace gpulet::net {
namespace {

constexpr std::size_t kImage = 602'112;

TEST(BufferPoolReuse, hands_out_the_memory_that_was_released) {
  BufferPool pool({});
  const std::byte* first = nullptr;
  {
    const MutableBytes buffer = pool.take(kImage).value();
    ASSERT_EQ(buffer.size(), kImage);
    first = buffer.view().data();
    EXPECT_EQ(pool.idle_bytes(), 0U);
  }
  EXPECT_GE(pool.idle_bytes(), kImage);
  EXPECT_EQ(pool.take(kImage - 1000).value().view().data(), first);
}

TEST(BufferPoolReuse, waits_for_the_last_view_of_it) {
  BufferPool pool({});
  Bytes slice = pool.take(kImage).value().freeze().slice(10, 10);
  EXPECT_EQ(pool.idle_bytes(), 0U);
  slice = Bytes();
  EXPECT_GE(pool.idle_bytes(), kImage);
  EXPECT_EQ(pool.used_bytes(), 0U);
}

TEST(BufferPoolReuse, wastes_at_most_a_quarter) {
  BufferPool pool({});
  for (std::size_t bytes = 32U << 10U; bytes < 100U << 20U; bytes = bytes * 9 / 8 + 1) {
    const MutableBytes buffer = pool.take(bytes).value();
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_GE(pool.used_bytes(), bytes);
    EXPECT_LE(pool.used_bytes(), bytes + bytes / 4) << bytes;
  }
}

TEST(BufferPoolBounds, keeps_no_more_idle_than_it_may_and_the_sizes_that_are_asked_for) {
  BufferPool pool({.max_idle_bytes = 2U << 20U, .max_used_bytes = 1U << 30U});
  {
    std::vector<MutableBytes> buffers(10);
    for (MutableBytes& buffer : buffers) buffer = pool.take(kImage).value();
  }
  EXPECT_LE(pool.idle_bytes(), 2U << 20U);
  EXPECT_GE(pool.idle_bytes(), kImage);
  const std::byte* other = pool.take(1'500'000).value().view().data();
  EXPECT_LE(pool.idle_bytes(), 2U << 20U);
  EXPECT_EQ(pool.take(1'500'000).value().view().data(), other);
}

TEST(BufferPoolBounds, refuses_when_too_much_is_in_use) {
  BufferPool pool({.max_idle_bytes = 0, .max_used_bytes = 1U << 20U});
  MutableBytes held = pool.take(kImage).value();
  const auto refused = pool.take(kImage);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::overloaded);
  held = {};
  EXPECT_TRUE(pool.take(kImage).ok());
}

TEST(BufferPoolWindows, ABufferThatNobodyTookThroughoutAWindowIsStale) {
  BufferPool pool({});
  (void)pool.take(kImage);
  pool.begin_window();
  EXPECT_EQ(pool.stale_bytes(), 0U) << "it was in use when the last window began";
  pool.begin_window();
  EXPECT_EQ(pool.stale_bytes(), pool.idle_bytes());
  const MutableBytes held = pool.take(kImage / 2).value();
  pool.release_stale();
  EXPECT_EQ(pool.idle_bytes(), 0U);
  EXPECT_EQ(pool.stale_bytes(), 0U);
  EXPECT_GE(pool.used_bytes(), kImage / 2);
}

TEST(BufferPoolWindows, TheBuffersThatALoadTakesAreKeptForIt) {
  BufferPool pool({});
  const auto take_at_once = [&](std::size_t count) {
    std::vector<MutableBytes> held;
    for (std::size_t i = 0; i < count; ++i) held.push_back(pool.take(kImage).value());
  };
  take_at_once(8);  // a peak
  const std::size_t one = pool.idle_bytes() / 8;
  pool.begin_window();
  take_at_once(3);
  pool.begin_window();
  EXPECT_EQ(pool.stale_bytes(), 5 * one);
  pool.release_stale();
  EXPECT_EQ(pool.idle_bytes(), 3 * one);
  take_at_once(2);
  pool.begin_window();
  EXPECT_EQ(pool.stale_bytes(), one);
  take_at_once(3);
  EXPECT_EQ(pool.stale_bytes(), 0U) << "the load came back for it";
}

TEST(BufferPoolBounds, small_buffers_are_exact_and_buffers_may_outlive_the_pool) {
  auto pool = std::make_unique<BufferPool>(BufferPoolOptions{});
  const MutableBytes small = pool->take(3136).value();
  const MutableBytes empty = pool->take(0).value();
  const MutableBytes large = pool->take(kImage).value();
  pool.reset();
  EXPECT_EQ(small.size(), 3136U);
  EXPECT_EQ(empty.size(), 0U);
  std::memset(large.view().data(), 1, large.size());
}

TEST(BufferPoolIncoming, counts_what_was_received_and_not_what_was_announced) {
  constexpr std::size_t kAnnounced = 64U << 20U;
  BufferPool pool({.max_idle_bytes = 0, .max_used_bytes = 64U << 20U});
  std::vector<IncomingBytes> announced;
  for (int i = 0; i < 32; ++i) {
    announced.push_back(pool.take_incoming(kAnnounced).value());
    ASSERT_TRUE(announced.back().filled(1).ok());
  }
  EXPECT_LE(pool.used_bytes(), 32 * BufferPool::kFirstCharge);
  EXPECT_TRUE(pool.take(16U << 20U).ok());
}

TEST(BufferPoolIncoming, counts_at_most_twice_what_came_and_in_the_end_all) {
  constexpr std::size_t kWhole = 8U << 20U;
  BufferPool pool({});
  {
    IncomingBytes incoming = pool.take_incoming(kWhole).value();
    for (std::size_t came = 10'000; came <= kWhole; came += 50'000) {
      ASSERT_TRUE(incoming.filled(came).ok());
      EXPECT_GE(pool.used_bytes(), came);
      EXPECT_LE(pool.used_bytes(), 2 * came + BufferPool::kFirstCharge);
    }
    ASSERT_TRUE(incoming.filled(kWhole).ok());
    EXPECT_GE(pool.used_bytes(), kWhole);
  }
  EXPECT_EQ(pool.used_bytes(), 0U);
  EXPECT_GE(pool.idle_bytes(), kWhole);
}

TEST(BufferPoolIncoming, refuses_the_bytes_for_which_there_is_no_room) {
  BufferPool pool({.max_idle_bytes = 0, .max_used_bytes = 1U << 20U});
  IncomingBytes incoming = pool.take_incoming(2U << 20U).value();
  ASSERT_TRUE(incoming.filled(400'000).ok());
  EXPECT_EQ(incoming.filled(900'000).code(), StatusCode::overloaded);
  incoming = {};
  EXPECT_EQ(pool.used_bytes(), 0U);
}

// Pages that were there before cost memory whether they are filled or not.
TEST(BufferPoolIncoming, keeps_counting_reused_memory_as_idle_until_it_is_filled) {
  constexpr std::size_t kWhole = 1U << 20U;
  BufferPool pool({.max_idle_bytes = kWhole, .max_used_bytes = 16 * kWhole});
  (void)pool.take(kWhole);
  ASSERT_GE(pool.idle_bytes(), kWhole);
  IncomingBytes incoming = pool.take_incoming(kWhole).value();
  EXPECT_EQ(pool.idle_bytes() + pool.used_bytes(), kWhole);
  { const MutableBytes other = pool.take(kWhole).value(); }
  EXPECT_LE(pool.idle_bytes(), kWhole);
  ASSERT_TRUE(incoming.filled(kWhole).ok());
  EXPECT_EQ(pool.idle_bytes(), 0U);
  incoming = {};
  EXPECT_EQ(pool.idle_bytes(), kWhole);
}

TEST(BufferPoolThreads, buffers_may_be_released_on_any_of_them) {
  BufferPool pool({});
  std::vector<std::jthread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (std::size_t i = 0; i < 500; ++i) {
        const MutableBytes buffer = pool.take(40'000 + 10'000 * (i % 7)).value();
        std::memset(buffer.view().data(), t, 64);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(pool.used_bytes(), 0U);
}

}  // namespace
}  // namespace gpulet::net
