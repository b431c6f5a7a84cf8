// Which files of a model store make room for a new one.
#include "backend/store_space.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace gpulet::backend {
namespace {

using Chosen = std::vector<std::size_t>;

TEST(ChooseEvictions, DeletesNothingWhereThereIsRoom) {
  const std::vector<StoredFile> files{{100, 1, false}, {100, 2, true}};
  EXPECT_EQ(choose_evictions(files, {.free_bytes = 50}, 50).value(), Chosen());
  EXPECT_EQ(choose_evictions(files, {.free_bytes = 50, .most_bytes = 250}, 50).value(), Chosen());
}

TEST(ChooseEvictions, DeletesTheLeastRecentlyUsedFirstAndNoMoreThanNeeded) {
  const std::vector<StoredFile> files{
      {100, 3, false}, {100, 1, true}, {100, 2, false}, {100, 4, false}};
  EXPECT_EQ(choose_evictions(files, {.free_bytes = 10}, 110).value(), Chosen({2}));
  EXPECT_EQ(choose_evictions(files, {.free_bytes = 10}, 111).value(), Chosen({2, 0}));
  EXPECT_EQ(choose_evictions(files, {.free_bytes = 1000, .most_bytes = 400}, 100).value(),
            Chosen({2}));
}

TEST(ChooseEvictions, CountsWhatIsBeingReceived) {
  const std::vector<StoredFile> files{{100, 1, false}};
  EXPECT_EQ(choose_evictions(files, {.free_bytes = 100, .promised_bytes = 60}, 50).value(),
            Chosen({0}));
  EXPECT_EQ(
      choose_evictions(files, {.free_bytes = 999, .unfinished_bytes = 60, .most_bytes = 200}, 50)
          .value(),
      Chosen({0}));
}

TEST(ChooseEvictions, FailsWithTheNumbersWhereFilesInUseLeaveNoRoom) {
  const std::vector<StoredFile> files{{100, 1, true}, {30, 2, false}};
  const auto disk = choose_evictions(files, {.free_bytes = 20}, 51).status();
  EXPECT_EQ(disk.code(), StatusCode::unavailable);
  EXPECT_NE(disk.message().find("51 bytes are needed and 20 bytes are free"), std::string::npos)
      << disk.message();
  const auto limit = choose_evictions(files, {.free_bytes = 999, .most_bytes = 150}, 51).status();
  EXPECT_EQ(limit.code(), StatusCode::unavailable);
  EXPECT_NE(limit.message().find("model_store_mb"), std::string::npos) << limit.message();
}

TEST(ChooseEvictions, ASizeThatNoDiskHasDeletesNothing) {
  constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
  const std::vector<StoredFile> files{{100, 1, false}};
  EXPECT_FALSE(choose_evictions(files, {.free_bytes = 20, .promised_bytes = 9}, kHuge).ok());
  EXPECT_FALSE(choose_evictions(files, {.free_bytes = kHuge, .most_bytes = 200}, kHuge).ok());
}

RC_GTEST_PROP(ChooseEvictionsProperty, MakesRoomFromTheOldestUnusedFilesOrDeletesNothing, ()) {
  const auto files = *rc::gen::container<std::vector<StoredFile>>(rc::gen::build<StoredFile>(
      rc::gen::set(&StoredFile::bytes, rc::gen::inRange<std::uint64_t>(0, 100)),
      rc::gen::set(&StoredFile::last_used_ns, rc::gen::inRange<std::int64_t>(0, 10)),
      rc::gen::set(&StoredFile::used, rc::gen::arbitrary<bool>())));
  StoreSpace space;
  space.free_bytes = *rc::gen::inRange<std::uint64_t>(0, 300);
  space.promised_bytes = *rc::gen::inRange<std::uint64_t>(0, 50);
  space.unfinished_bytes = space.promised_bytes;
  if (*rc::gen::arbitrary<bool>()) space.most_bytes = *rc::gen::inRange<std::uint64_t>(0, 500);
  const auto needed = *rc::gen::inRange<std::uint64_t>(1, 200);

  const auto fits_without = [&](const std::set<std::size_t>& deleted) {
    std::uint64_t free = space.free_bytes;
    std::uint64_t held = space.unfinished_bytes;
    for (std::size_t i = 0; i < files.size(); ++i)
      (deleted.contains(i) ? free : held) += files[i].bytes;
    return free >= needed + space.promised_bytes &&
           (!space.most_bytes || held + needed <= *space.most_bytes);
  };
  std::set<std::size_t> unused;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!files[i].used) unused.insert(i);
  }
  const auto chosen = choose_evictions(files, space, needed);
  RC_ASSERT(chosen.ok() == fits_without(unused));
  if (!chosen.ok()) return;
  std::set<std::size_t> deleted(chosen.value().begin(), chosen.value().end());
  RC_ASSERT(deleted.size() == chosen.value().size());
  RC_ASSERT(fits_without(deleted));
  for (const auto i : deleted) {
    RC_ASSERT(!files[i].used);
    for (const auto kept : unused) {
      if (!deleted.contains(kept)) RC_ASSERT(files[kept].last_used_ns >= files[i].last_used_ns);
    }
  }
  if (!deleted.empty()) {
    deleted.erase(chosen.value().back());
    RC_ASSERT(!fits_without(deleted));
  }
}

}  // namespace
}  // namespace gpulet::backend
