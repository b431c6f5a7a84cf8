// A model store that is short of space, and what it keeps.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "gpulet/backend/model_store.h"
#include "gpulet/core/sha256.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::backend {
namespace {

using Names = std::set<std::string, std::less<>>;

std::string text_of_model(char name, std::size_t bytes) { return std::string(bytes, name); }

// A model file of one piece, and its name in the store.
serve::ModelPiece whole(const std::string& text) {
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
    return store.take(whole(text_of_model(name, bytes))).status();
  }
  // A gpulet came for it and went.
  static void put_and_leave(ModelStore& store, char name) {
    ASSERT_TRUE(put(store, name, 100).ok());
    store.keep_only({});
  }

  support::TemporaryFolder directory_;
};

TEST_F(StoreEvictionTest, DeletesTheLeastRecentlyUsedOfWhatNobodyUsesBeyondItsLimit) {
  auto store = open({.most_bytes = 300});
  for (const char name : {'a', 'b', 'c'}) put_and_leave(store, name);
  ASSERT_TRUE(store.use(name_of('a', 100)));
  store.keep_only({});  // b is the least recently used now
  ASSERT_TRUE(put(store, 'd', 100).ok());
  EXPECT_TRUE(store.find(name_of('a', 100)));
  EXPECT_FALSE(store.find(name_of('b', 100)));
  EXPECT_TRUE(store.find(name_of('c', 100)));
  EXPECT_TRUE(store.find(name_of('d', 100)));
}

TEST_F(StoreEvictionTest, KeepsWhatIsUsedAndSaysThatTheLimitIsTooLow) {
  auto store = open({.most_bytes = 250});
  ASSERT_TRUE(put(store, 'a', 100).ok());
  ASSERT_TRUE(put(store, 'b', 100).ok());
  const auto refused = put(store, 'c', 100);
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_NE(refused.message().find((directory_.path() / "store").string()), std::string::npos)
      << refused.message();
  EXPECT_TRUE(store.find(name_of('a', 100)) && store.find(name_of('b', 100)));
  store.keep_only({name_of('b', 100)});
  EXPECT_TRUE(put(store, 'c', 100).ok()) << "one gpulet has gone";
  EXPECT_FALSE(store.find(name_of('a', 100)));
}

TEST_F(StoreEvictionTest, DeletesForADiskThatIsFull) {
  std::uint64_t free = 1000;
  auto store = open({.free_bytes = [&free](const auto&) { return free; }});
  ASSERT_TRUE(put(store, 'a', 100).ok());
  store.keep_only({});
  free = 50;
  ASSERT_TRUE(put(store, 'b', 120).ok());
  EXPECT_FALSE(store.find(name_of('a', 100)));
  const auto refused = put(store, 'c', 120);
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_NE(refused.message().find("120 bytes are needed and 50 bytes are free"), std::string::npos)
      << refused.message();
  EXPECT_TRUE(store.find(name_of('b', 120)));
}

TEST_F(StoreEvictionTest, RemembersWhenAFileWasUsedOverARestart) {
  {
    auto store = open({});
    for (const char name : {'a', 'b', 'c'}) put_and_leave(store, name);
    ASSERT_TRUE(store.use(name_of('a', 100)));
    store.keep_only({});
  }
  auto store = open({.most_bytes = 300});
  ASSERT_TRUE(put(store, 'd', 100).ok());
  EXPECT_TRUE(store.find(name_of('a', 100)));
  EXPECT_FALSE(store.find(name_of('b', 100)));
}

TEST_F(StoreEvictionTest, LeavesWhatAnotherBackendUses) {
  auto other = open({});
  ASSERT_TRUE(put(other, 'a', 100).ok());
  auto store = open({.most_bytes = 200});
  ASSERT_TRUE(put(store, 'b', 100).ok());
  store.keep_only({});
  ASSERT_TRUE(put(store, 'c', 100).ok()) << "b goes, though a is older";
  EXPECT_TRUE(store.find(name_of('a', 100)));
  EXPECT_FALSE(store.find(name_of('b', 100)));
  EXPECT_EQ(put(store, 'd', 100).code(), StatusCode::unavailable);
}

TEST_F(StoreEvictionTest, LeavesFilesThatAreNotModels) {
  auto store = open({.most_bytes = 100});
  std::ofstream(directory_.path() / "store" / "notes.txt") << std::string(500, 'n');
  ASSERT_TRUE(put(store, 'a', 100).ok());
  store.keep_only({});
  ASSERT_TRUE(put(store, 'b', 100).ok());
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "store" / "notes.txt"));
}

// A disk of its own where this user may mount one.
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

TEST_F(StoreEvictionTest, EndsNeitherFullNorEmptyOnARealDisk) {
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

// The free bytes say that there is room, and writing finds none: blocks, a quota, another writer.
TEST_F(StoreEvictionTest, DeletesWhereOnlyWritingFindsTheDiskFull) {
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

RC_GTEST_PROP(StoreEvictionProperty, KeepsWhatIsUsedAndItsLimitAfterAnySequence, ()) {
  constexpr std::uint64_t kMost = 500;
  const support::TemporaryFolder directory;
  auto opened = ModelStore::open(directory.path(), {.most_bytes = kMost});
  RC_ASSERT(opened.ok());
  auto store = std::move(opened).value();
  Names used;
  constexpr int kMostSteps = 12;  // each syncs a file
  const auto steps = *rc::gen::resize(
      kMostSteps, rc::gen::container<std::vector<std::pair<char, std::size_t>>>(rc::gen::pair(
                      rc::gen::inRange('a', 'h'), rc::gen::element<std::size_t>(50, 120, 0))));
  for (const auto& [name, bytes] : steps) {
    if (bytes == 0) {  // a gpulet goes
      if (!used.empty()) used.erase(used.begin());
      store.keep_only(used);
      continue;
    }
    const auto sha256 = name_of(name, bytes);
    const bool there = store.use(sha256).has_value() ||
                       store.take(whole(text_of_model(name, bytes))).status().ok();
    if (there) used.insert(sha256);
    for (const auto& one : used) RC_ASSERT(store.find(one).has_value());
    std::uint64_t size = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
      size += entry.file_size();
    RC_ASSERT(size <= kMost);
  }
}

}  // namespace
}  // namespace gpulet::backend
