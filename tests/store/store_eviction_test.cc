// The eviction of files from a model store.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <numeric>
#include <set>

#include "gpulet/base/sha256.h"
#include "gpulet/store/model_store.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::store::store_eviction_test {
namespace {

using support::names;

using Chosen = std::vector<std::size_t>;

TEST(ChooseEvictions, EvictsNothingIfThereIsSpace) {
  const std::vector<StoredFile> files{{100, 1, false}, {100, 2, true}};
  EXPECT_EQ(choose_evictions(files, {.free_bytes = 50}, 50).value(), Chosen());
  EXPECT_EQ(choose_evictions(files, {.free_bytes = 50, .max_bytes = 250}, 50).value(), Chosen());
}

TEST(ChooseEvictions, EvictsTheLeastRecentlyUsedFirstAndNoMoreThanNeeded) {
  const std::vector<StoredFile> files{
      {100, 3, false}, {100, 1, true}, {100, 2, false}, {100, 4, false}};
  EXPECT_EQ(choose_evictions(files, {.free_bytes = 10}, 110).value(), Chosen({2}));
  EXPECT_EQ(choose_evictions(files, {.free_bytes = 10}, 111).value(), Chosen({2, 0}));
  EXPECT_EQ(choose_evictions(files, {.free_bytes = 1000, .max_bytes = 400}, 100).value(),
            Chosen({2}));
}

TEST(ChooseEvictions, CountsUnfinishedFiles) {
  const std::vector<StoredFile> files{{100, 1, false}};
  EXPECT_EQ(choose_evictions(files, {.free_bytes = 100, .reserved_bytes = 60}, 50).value(),
            Chosen({0}));
  EXPECT_EQ(
      choose_evictions(files, {.free_bytes = 999, .unfinished_bytes = 60, .max_bytes = 200}, 50)
          .value(),
      Chosen({0}));
}

TEST(ChooseEvictions, FailsIfFilesInUseLeaveTooLittleSpace) {
  const std::vector<StoredFile> files{{100, 1, true}, {30, 2, false}};
  const auto disk = choose_evictions(files, {.free_bytes = 20}, 51).status();
  EXPECT_EQ(disk.code(), StatusCode::unavailable);
  const auto limit = choose_evictions(files, {.free_bytes = 999, .max_bytes = 150}, 51).status();
  EXPECT_EQ(limit.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(limit, "model_store_mb"));
}

TEST(ChooseEvictions, ASizeBeyondAnyDiskEvictsNothing) {
  constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
  const std::vector<StoredFile> files{{100, 1, false}};
  EXPECT_FALSE(choose_evictions(files, {.free_bytes = 20, .reserved_bytes = 9}, kHuge).ok());
  EXPECT_FALSE(choose_evictions(files, {.free_bytes = kHuge, .max_bytes = 200}, kHuge).ok());
}

RC_GTEST_PROP(ChooseEvictionsProperty, EvictsTheOldestUnusedFilesOrNothing, ()) {
  const auto files = *rc::gen::container<std::vector<StoredFile>>(rc::gen::build<StoredFile>(
      rc::gen::set(&StoredFile::bytes, rc::gen::inRange<std::uint64_t>(0, 100)),
      rc::gen::set(&StoredFile::last_used_ns, rc::gen::inRange<std::int64_t>(0, 10)),
      rc::gen::set(&StoredFile::used, rc::gen::arbitrary<bool>())));
  StoreSpace space;
  space.free_bytes = *rc::gen::inRange<std::uint64_t>(0, 300);
  space.reserved_bytes = *rc::gen::inRange<std::uint64_t>(0, 50);
  space.unfinished_bytes = space.reserved_bytes;
  if (*rc::gen::arbitrary<bool>()) space.max_bytes = *rc::gen::inRange<std::uint64_t>(0, 500);
  const auto needed = *rc::gen::inRange<std::uint64_t>(1, 200);

  const auto fits_without = [&](const std::set<std::size_t>& deleted) {
    std::uint64_t free = space.free_bytes;
    std::uint64_t held = space.unfinished_bytes;
    for (std::size_t i = 0; i < files.size(); ++i)
      (deleted.contains(i) ? free : held) += files[i].bytes;
    return free >= needed + space.reserved_bytes &&
           (!space.max_bytes || held + needed <= *space.max_bytes);
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

// ---- the store

using Names = std::set<std::string, std::less<>>;

std::string text_of_model(char name, std::size_t bytes) { return std::string(bytes, name); }

// A model file in one piece, and its name in the store.
ModelPiece whole(const std::string& text) {
  const auto view = std::as_bytes(std::span(text));
  return {sha256_of(text), 0, text.size(), Bytes::own({view.begin(), view.end()})};
}
std::string name_of(char name, std::size_t bytes) { return sha256_of(text_of_model(name, bytes)); }

class StoreEvictionTest : public ::testing::Test {
 protected:
  [[nodiscard]] ModelStore open(ModelStoreOptions options) const {
    auto opened = ModelStore::open(directory_.path() / "store", std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return std::move(opened).value();
  }
  static Status put(ModelStore& store, char name, std::size_t bytes) {
    return store.add(whole(text_of_model(name, bytes))).status();
  }
  // Stores a file that no gpulet uses any more.
  static void put_unused(ModelStore& store, char name) {
    ASSERT_TRUE(put(store, name, 100).ok());
    store.keep_only({});
  }

  support::TemporaryFolder directory_;
};

TEST_F(StoreEvictionTest, EvictsTheLeastRecentlyUsedFileAtItsLimit) {
  auto store = open({.max_bytes = 300});
  for (const char name : {'a', 'b', 'c'}) put_unused(store, name);
  ASSERT_TRUE(store.use(name_of('a', 100)));
  store.keep_only({});  // b is the least recently used now
  ASSERT_TRUE(put(store, 'd', 100).ok());
  EXPECT_TRUE(store.find(name_of('a', 100)));
  EXPECT_FALSE(store.find(name_of('b', 100)));
  EXPECT_TRUE(store.find(name_of('c', 100)));
  EXPECT_TRUE(store.find(name_of('d', 100)));
}

TEST_F(StoreEvictionTest, KeepsFilesInUseAtItsLimit) {
  auto store = open({.max_bytes = 250});
  ASSERT_TRUE(put(store, 'a', 100).ok());
  ASSERT_TRUE(put(store, 'b', 100).ok());
  const auto refused = put(store, 'c', 100);
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(refused, (directory_.path() / "store").string()));
  EXPECT_TRUE(store.find(name_of('a', 100)) && store.find(name_of('b', 100)));
  store.keep_only({name_of('b', 100)});
  EXPECT_TRUE(put(store, 'c', 100).ok()) << "a gpulet has ended";
  EXPECT_FALSE(store.find(name_of('a', 100)));
}

TEST_F(StoreEvictionTest, EvictsForAFullDisk) {
  std::uint64_t free = 1000;
  auto store = open({.free_bytes = [&free](const auto&) { return free; }});
  ASSERT_TRUE(put(store, 'a', 100).ok());
  store.keep_only({});
  free = 50;
  ASSERT_TRUE(put(store, 'b', 120).ok());
  EXPECT_FALSE(store.find(name_of('a', 100)));
  const auto refused = put(store, 'c', 120);
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_TRUE(store.find(name_of('b', 120)));
}

TEST_F(StoreEvictionTest, KeepsTheTimeOfUseOverARestart) {
  {
    auto store = open({});
    for (const char name : {'a', 'b', 'c'}) put_unused(store, name);
    ASSERT_TRUE(store.use(name_of('a', 100)));
    store.keep_only({});
  }
  auto store = open({.max_bytes = 300});
  ASSERT_TRUE(put(store, 'd', 100).ok());
  EXPECT_TRUE(store.find(name_of('a', 100)));
  EXPECT_FALSE(store.find(name_of('b', 100)));
}

TEST_F(StoreEvictionTest, KeepsFilesThatAnotherBackendUses) {
  auto other = open({});
  ASSERT_TRUE(put(other, 'a', 100).ok());
  auto store = open({.max_bytes = 200});
  ASSERT_TRUE(put(store, 'b', 100).ok());
  store.keep_only({});
  ASSERT_TRUE(put(store, 'c', 100).ok()) << "evicts b, although a is older";
  EXPECT_TRUE(store.find(name_of('a', 100)));
  EXPECT_FALSE(store.find(name_of('b', 100)));
  EXPECT_EQ(put(store, 'd', 100).code(), StatusCode::unavailable);
}

TEST_F(StoreEvictionTest, KeepsFilesThatAreNotModels) {
  auto store = open({.max_bytes = 100});
  std::ofstream(directory_.path() / "store" / "notes.txt") << std::string(500, 'n');
  ASSERT_TRUE(put(store, 'a', 100).ok());
  store.keep_only({});
  ASSERT_TRUE(put(store, 'b', 100).ok());
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "store" / "notes.txt"));
}

// A separate file system, if this user may mount one.
class SmallDisk {
 public:
  explicit SmallDisk(std::filesystem::path at) : at_(std::move(at)) {
    std::filesystem::create_directory(at_);
    mounted_ = ::mount("tmpfs", at_.c_str(), "tmpfs", 0, "size=64k,mode=0700") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(at_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  [[nodiscard]] bool mounted() const { return mounted_; }

 private:
  const std::filesystem::path at_;
  bool mounted_ = false;
};

TEST_F(StoreEvictionTest, EvictsOnARealDisk) {
  const SmallDisk disk(directory_.path() / "store");
  if (!disk.mounted()) GTEST_SKIP() << "only root mounts a disk";
  auto store = open({});
  for (const char name : {'a', 'b', 'c', 'd', 'e', 'f'}) {
    ASSERT_TRUE(put(store, name, 20000).ok()) << name;
    store.keep_only({name_of(name, 20000)});
  }
  EXPECT_TRUE(store.find(name_of('f', 20000)));
  EXPECT_FALSE(store.find(name_of('a', 20000)));
  EXPECT_EQ(put(store, 'g', 60000).code(), StatusCode::unavailable);
  EXPECT_TRUE(store.find(name_of('f', 20000))) << "in use";
}

// The disk reports free bytes, but writing fails: blocks, a quota, another writer.
TEST_F(StoreEvictionTest, EvictsIfOnlyWritingDetectsAFullDisk) {
  const SmallDisk disk(directory_.path() / "store");
  if (!disk.mounted()) GTEST_SKIP() << "only root mounts a disk";
  auto store = open({.free_bytes = [](const auto&) { return std::uint64_t{1} << 30U; }});
  ASSERT_TRUE(put(store, 'a', 40000).ok());
  store.keep_only({});
  ASSERT_TRUE(put(store, 'b', 40000).ok());
  EXPECT_FALSE(store.find(name_of('a', 40000)));
  EXPECT_EQ(put(store, 'c', 40000).code(), StatusCode::unavailable);
  EXPECT_TRUE(store.find(name_of('b', 40000)));
}

RC_GTEST_PROP(StoreEvictionProperty, KeepsFilesInUseAndItsLimitAfterAnySequence, ()) {
  constexpr std::uint64_t kMaxBytes = 500;
  const support::TemporaryFolder directory;
  auto opened = ModelStore::open(directory.path(), {.max_bytes = kMaxBytes});
  RC_ASSERT(opened.ok());
  auto store = std::move(opened).value();
  Names used;
  constexpr int kMaxSteps = 12;  // each syncs a file
  const auto steps = *rc::gen::resize(
      kMaxSteps, rc::gen::container<std::vector<std::pair<char, std::size_t>>>(rc::gen::pair(
                     rc::gen::inRange('a', 'h'), rc::gen::element<std::size_t>(50, 120, 0))));
  for (const auto& [name, bytes] : steps) {
    if (bytes == 0) {  // a gpulet ends
      if (!used.empty()) used.erase(used.begin());
      store.keep_only(used);
      continue;
    }
    const auto sha256 = name_of(name, bytes);
    const bool stored =
        store.use(sha256).has_value() || store.add(whole(text_of_model(name, bytes))).status().ok();
    if (stored) used.insert(sha256);
    for (const auto& one : used) RC_ASSERT(store.find(one).has_value());
    std::uint64_t size = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
      size += entry.file_size();
    RC_ASSERT(size <= kMaxBytes);
  }
}

}  // namespace
}  // namespace gpulet::store::store_eviction_test
