// What a process does without memory. Each case runs in a child process with a limit of its address
// space, which builds with a sanitizer cannot have.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "gpulet/net/buffer_pool.h"

namespace gpulet::net {
namespace {

constexpr std::size_t kMegabyte = 1U << 20U;

#if !defined(GPULET_SANITIZED)

// A process with that much more address space than it uses now.
void allow_megabytes(std::size_t megabytes) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t limit = pages * 4096 + megabytes * kMegabyte;
  const rlimit both{limit, limit};
  if (::setrlimit(RLIMIT_AS, &both) != 0) std::_Exit(100);
}

// Allocates until the reserve is spent; fails (null) where an allocation throws first.
std::unique_ptr<std::vector<std::unique_ptr<char[]>>> use_all(const MemoryReserve& reserve) {
  auto held = std::make_unique<std::vector<std::unique_ptr<char[]>>>();
  held->reserve(4096);
  try {
    while (!reserve.spent()) held->push_back(std::make_unique<char[]>(kMegabyte));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  return held;
}

int go_on_without_memory() {
  const auto reserve = std::make_shared<MemoryReserve>();
  BufferPool pool({.reserve = reserve});
  allow_megabytes(100);
  auto held = use_all(*reserve);
  if (!held) return 1;
  for (int i = 0; i < 8; ++i) held->push_back(std::make_unique<char[]>(kMegabyte));  // or throws
  if (pool.take(kMegabyte).status().code() != StatusCode::overloaded) return 2;
  if (!pool.take(1000).ok()) return 3;
  if (reserve->renew()) return 4;
  held.reset();
  if (!reserve->renew() || reserve->spent()) return 5;
  return pool.take(kMegabyte).ok() ? 0 : 6;
}

TEST(MemoryReserveDeathTest, SmallAllocationsGoOnAndBuffersAreRefused) {
  EXPECT_EXIT(std::_Exit(go_on_without_memory()), ::testing::ExitedWithCode(0), "");
}

int ask_for_a_buffer_that_cannot_be() {
  const auto reserve = std::make_shared<MemoryReserve>();
  BufferPool pool({.reserve = reserve});
  allow_megabytes(100);
  if (pool.take(500 * kMegabyte).status().code() != StatusCode::overloaded) return 1;
  return reserve->spent() ? 2 : 0;
}

TEST(MemoryReserveDeathTest, ALargeBufferDoesNotSpendIt) {
  EXPECT_EXIT(std::_Exit(ask_for_a_buffer_that_cannot_be()), ::testing::ExitedWithCode(0), "");
}

int ask_for_more_than_it_has() {
  const MemoryReserve reserve;
  allow_megabytes(100);
  try {
    const auto all = std::make_unique<char[]>(1000 * kMegabyte);
    return all[0];
  } catch (const std::bad_alloc&) {
    return reserve.spent() ? 7 : 1;
  }
}

TEST(MemoryReserveDeathTest, WhatItCannotHelpFails) {
  EXPECT_EXIT(std::_Exit(ask_for_more_than_it_has()), ::testing::ExitedWithCode(7), "");
}

#endif

TEST(MemoryReserve, IsWholeAtTheStart) {
  MemoryReserve reserve;
  EXPECT_FALSE(reserve.spent());
  EXPECT_TRUE(reserve.renew());
}

}  // namespace
}  // namespace gpulet::net
