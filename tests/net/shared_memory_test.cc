#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "gpulet/net/buffer_pool.h"

namespace gpulet::net::shared_memory_test {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 64;
constexpr std::size_t kImage = 602'112;

std::shared_ptr<SharedMemory> memory() { return SharedMemory::create(kPages * kPage).value(); }

// Not owning.
Bytes bytes_at(const std::byte* at, std::size_t count) { return {nullptr, {at, count}}; }

TEST(SharedMemory, ShowsAReaderWhatWasWritten) {
  const auto writer = memory();
  std::byte* const block = writer->allocate(3 * kPage);
  ASSERT_NE(block, nullptr);
  std::memset(block, 7, 3 * kPage);
  const auto view = SharedView::map(writer->reader().value()).value();
  const auto slice = writer->find(bytes_at(block + 100, 5000));
  ASSERT_TRUE(slice.has_value());
  EXPECT_EQ(slice->bytes, 5000U);
  const auto seen = view->find(*slice);
  ASSERT_TRUE(seen.has_value());
  EXPECT_TRUE(std::ranges::all_of(*seen, [](std::byte one) { return one == std::byte{7}; }));
}

TEST(SharedMemory, GivesAReaderNoMeansToWriteOrShrink) {
  const auto writer = memory();
  const FileDescriptor reader = writer->reader().value();
  EXPECT_EQ(::mmap(nullptr, kPage, PROT_WRITE, MAP_SHARED, reader.get(), 0), MAP_FAILED);
  EXPECT_NE(::ftruncate(reader.get(), 0), 0);
  const char byte = 1;
  EXPECT_LT(::write(reader.get(), &byte, 1), 0);
}

TEST(SharedMemory, FindsOnlyItsOwnBytes) {
  const auto writer = memory();
  const std::vector<std::byte> others(10);
  EXPECT_FALSE(writer->find(bytes_at(others.data(), others.size())).has_value());
  EXPECT_FALSE(writer->find(Bytes()).has_value());
}

TEST(SharedMemory, AReleasedBlockIsUsedAgainAndReadsAsZero) {
  const auto writer = memory();
  std::byte* const block = writer->allocate(kPages * kPage);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(writer->allocate(1), nullptr) << "there is no more room";
  std::memset(block, 7, kPages * kPage);
  writer->release(block);
  std::byte* const again = writer->allocate(kPages * kPage);
  ASSERT_EQ(again, block);
  EXPECT_EQ(again[0], std::byte{0}) << "its pages went back to the system";
}

TEST(SharedMemory, ARetiredBlockIsNeverUsedAgain) {
  const auto writer = memory();
  std::byte* const block = writer->allocate(kPage);
  std::memset(block, 7, kPage);
  const auto place = writer->find(bytes_at(block, kPage));
  writer->retire(bytes_at(block + 10, 20));
  EXPECT_TRUE(writer->retired(block));
  writer->release(block);
  std::size_t others = 0;
  while (std::byte* const other = writer->allocate(kPage)) {
    EXPECT_NE(other, block);
    std::memset(other, 9, kPage);
    ++others;
  }
  EXPECT_EQ(others, kPages - 1);
  const auto view = SharedView::map(writer->reader().value()).value();
  EXPECT_EQ(view->find(*place)->front(), std::byte{0}) << "a late reader finds nothing";
}

TEST(SharedMemory, BlocksNeverOverlapAndAllRoomComesBack) {
  const auto property = [] {
    const auto writer = memory();
    std::map<std::byte*, std::size_t> held;
    const auto steps = *rc::gen::container<std::vector<std::size_t>>(
        40, rc::gen::inRange<std::size_t>(0, 12 * kPage));
    for (const std::size_t step : steps) {
      if (step % 3 == 0 && !held.empty()) {
        writer->release(held.begin()->first);
        held.erase(held.begin());
      } else if (std::byte* const block = writer->allocate(step)) {
        const auto next = held.lower_bound(block);
        if (next != held.end()) RC_ASSERT(block + step <= next->first);
        if (next != held.begin())
          RC_ASSERT(std::prev(next)->first + std::prev(next)->second <= block);
        held[block] = step;
      }
    }
    for (const auto& [block, bytes] : held) writer->release(block);
    RC_ASSERT(writer->allocate(kPages * kPage) != nullptr);
  };
  EXPECT_TRUE(rc::check(property));
}

TEST(SharedView, RejectsSlicesOutsideTheMemory) {
  const auto view = SharedView::map(memory()->reader().value()).value();
  constexpr std::uint64_t kAll = kPages * kPage;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_TRUE(view->find({0, kAll}).has_value());
  EXPECT_TRUE(view->find({kAll, 0}).has_value());
  for (const SharedSlice& slice : std::vector<SharedSlice>{
           {0, kAll + 1}, {kAll, 1}, {1, kAll}, {kMost, 1}, {1, kMost}, {kMost, kMost}})
    EXPECT_FALSE(view->find(slice).has_value()) << slice.offset << " " << slice.bytes;
}

TEST(SharedView, RefusesAFileThatCouldShrink) {
  const FileDescriptor open_ended(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open_ended.get(), kPage), 0);
  EXPECT_EQ(SharedView::map(open_ended).status().code(), StatusCode::invalid);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const FileDescriptor pipe(ends[0]);
  const FileDescriptor other_end(ends[1]);
  EXPECT_EQ(SharedView::map(pipe).status().code(), StatusCode::invalid);
}

TEST(SharedPool, HandsOutSharedMemoryOnceItShares) {
  BufferPool pool({.max_idle_bytes = 4U << 20U, .max_used_bytes = 16U << 20U});
  const Bytes before = pool.take(kImage).value().freeze();
  (void)pool.take(kImage).value();  // idle now
  const auto shared = pool.share().value();
  EXPECT_EQ(pool.share().value(), shared);
  EXPECT_EQ(pool.idle_bytes(), 0U) << "buffers of the heap are not handed out again";
  EXPECT_FALSE(shared->find(before).has_value());
  Bytes after = pool.take(kImage).value().freeze();
  const auto place = shared->find(after);
  ASSERT_TRUE(place.has_value());
  after = Bytes();
  EXPECT_EQ(shared->find(pool.take(kImage).value().freeze()), place) << "it was reused";
}

TEST(SharedPool, KeepsItsAccountsWhileItBeginsToShare) {
  BufferPool pool({.max_idle_bytes = 4U << 20U, .max_used_bytes = 16U << 20U});
  (void)pool.take(kImage).value();  // idle now
  {
    const auto incoming = pool.take_incoming(kImage).value();  // partly charged, so partly idle
    ASSERT_TRUE(pool.share().ok());
  }
  EXPECT_EQ(pool.used_bytes(), 0U);
  EXPECT_EQ(pool.idle_bytes(), 0U) << "a buffer of the heap is not kept";
  (void)pool.take(kImage).value();
  EXPECT_GE(pool.idle_bytes(), kImage);
}

TEST(SharedPool, DoesNotKeepARetiredBuffer) {
  BufferPool pool({.max_idle_bytes = 4U << 20U, .max_used_bytes = 16U << 20U});
  const auto shared = pool.share().value();
  Bytes buffer = pool.take(kImage).value().freeze();
  const auto place = shared->find(buffer);
  shared->retire(buffer);
  buffer = Bytes();
  EXPECT_EQ(pool.idle_bytes(), 0U);
  EXPECT_EQ(pool.used_bytes(), 0U);
  EXPECT_NE(shared->find(pool.take(kImage).value().freeze()), place);
}

TEST(SharedPool, GoesOnWithTheHeapWhereNoRoomIsLeft) {
  BufferPool pool({.max_idle_bytes = 0, .max_used_bytes = 2U << 20U});
  const auto shared = pool.share().value();
  for (int i = 0; i < 8; ++i) {
    Bytes buffer = pool.take(kImage).value().freeze();
    shared->retire(buffer);
  }
  const Bytes buffer = pool.take(kImage).value().freeze();
  EXPECT_FALSE(shared->find(buffer).has_value());
}

}  // namespace
}  // namespace gpulet::net::shared_memory_test
