#include "gpulet/store/model_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "gpulet/base/sha256.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::store {
namespace {

using support::names;

Bytes bytes_of(const std::string& text) {
  const auto view = std::as_bytes(std::span(text));
  return Bytes::own({view.begin(), view.end()});
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

const std::string kText = "the bytes of a model";

ModelPiece piece(std::uint64_t offset, std::size_t length) {
  return {sha256_of(kText), offset, kText.size(), bytes_of(kText.substr(offset, length))};
}

class ModelStoreTest : public ::testing::Test {
 protected:
  [[nodiscard]] ModelStore open() const {
    auto opened = ModelStore::open(directory_.path() / "store");
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return std::move(opened).value();
  }
  [[nodiscard]] std::size_t files() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator(directory_.path() / "store")) {
      ++count;
    }
    return count;
  }

  support::TemporaryFolder directory_;
};

TEST_F(ModelStoreTest, KeepsAFileReceivedInPieces) {
  auto store = open();
  EXPECT_FALSE(store.find(sha256_of(kText)));
  auto first = store.add(piece(0, 5));
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(first.value());
  EXPECT_FALSE(store.find(sha256_of(kText))) << "it is not complete";
  const auto last = store.add(piece(5, kText.size()));
  ASSERT_TRUE(last.ok()) << last.status().to_string();
  ASSERT_TRUE(last.value());
  EXPECT_EQ(text_of(*last.value()), kText);
  EXPECT_EQ(open().find(sha256_of(kText)), last.value())
      << "another store on the same directory sees it";
  EXPECT_EQ(files(), 1U);
}

TEST_F(ModelStoreTest, AFileThatChangedWhileSentMayComeAgain) {
  auto store = open();
  ASSERT_TRUE(store.add(piece(0, 5)).ok());
  EXPECT_EQ(store.add({sha256_of(kText), 0, 0, {}, true}).status().code(), StatusCode::unavailable);
  EXPECT_EQ(store.add({sha256_of(kText), 0, 0, {}}).status().code(), StatusCode::not_found);
  EXPECT_EQ(files(), 0U);
  EXPECT_TRUE(store.add(piece(0, kText.size())).value());
}

TEST_F(ModelStoreTest, RejectsAnotherHash) {
  auto store = open();
  auto wrong = piece(0, kText.size());
  wrong.sha256 = std::string(64, 'a');
  EXPECT_EQ(store.add(wrong).status().code(), StatusCode::invalid);
  EXPECT_FALSE(store.find(wrong.sha256));
  EXPECT_EQ(files(), 0U);
}

TEST_F(ModelStoreTest, RejectsPiecesOutOfOrder) {
  auto store = open();
  ASSERT_TRUE(store.add(piece(0, 5)).ok());
  EXPECT_EQ(store.add(piece(6, 3)).status().code(), StatusCode::malformed);
  EXPECT_EQ(files(), 0U);
  EXPECT_TRUE(store.add(piece(9, 3)).ok()) << "further pieces are ignored";
  EXPECT_EQ(files(), 0U);
}

TEST_F(ModelStoreTest, RejectsMoreBytesThanAnnounced) {
  auto store = open();
  auto longer = piece(0, kText.size());
  longer.total_bytes = 3;
  EXPECT_EQ(store.add(longer).status().code(), StatusCode::malformed);
  EXPECT_EQ(files(), 0U);
}

TEST_F(ModelStoreTest, ReportsThatTheFrontendLacksAFile) {
  auto store = open();
  EXPECT_EQ(store.add({sha256_of(kText), 0, 0, {}}).status().code(), StatusCode::not_found);
}

TEST_F(ModelStoreTest, RejectsNamesThatLeadOutOfItsDirectory) {
  auto store = open();
  for (const std::string& name : {std::string("../../etc/passwd"), std::string(),
                                  std::string(64, 'A'), "../" + std::string(61, 'a')}) {
    EXPECT_EQ(store.add({name, 0, 1, bytes_of("x")}).status().code(), StatusCode::malformed)
        << name;
    EXPECT_FALSE(store.find(name));
  }
}

TEST_F(ModelStoreTest, DoesNotFollowLinks) {
  const auto outside = directory_.path() / "outside";
  std::ofstream(outside) << "not hashed";
  auto store = open();
  const auto store_path = directory_.path() / "store";
  std::filesystem::create_symlink(outside, store_path / (sha256_of(kText) + ".pt"));
  EXPECT_FALSE(store.find(sha256_of(kText)));
  // Not even a link with the name of the temporary file.
  std::filesystem::create_symlink(
      outside, store_path / (sha256_of(kText) + "." + std::to_string(::getpid()) + ".part"));
  EXPECT_EQ(store.add(piece(0, kText.size())).status().code(), StatusCode::unavailable);
  EXPECT_EQ(text_of(outside), "not hashed");
}

TEST_F(ModelStoreTest, IsAccessibleToItsUserOnly) {
  auto store = open();
  const auto stored = store.add(piece(0, kText.size()));
  ASSERT_TRUE(stored.ok() && stored.value());
  using std::filesystem::perms;
  const auto mode = [](const std::filesystem::path& path) {
    return std::filesystem::status(path).permissions();
  };
  EXPECT_EQ(mode(directory_.path() / "store"), perms::owner_all);
  EXPECT_EQ(mode(*stored.value()), perms::owner_read | perms::owner_write);
  // Proxies of another user must open the files. A later backend without such a user revokes that.
  const perms shared =
      perms::owner_read | perms::owner_write | perms::group_read | perms::others_read;
  ASSERT_TRUE(ModelStore::open(directory_.path() / "store", {.readable_by_others = true}).ok());
  EXPECT_EQ(mode(*stored.value()), shared);
  ASSERT_TRUE(ModelStore::open(directory_.path() / "store").ok());
  EXPECT_EQ(mode(*stored.value()), perms::owner_read | perms::owner_write);
  std::filesystem::permissions(directory_.path() / "store", perms::all);
  const auto refused = ModelStore::open(directory_.path() / "store").status();
  EXPECT_EQ(refused.code(), StatusCode::invalid);
}

TEST_F(ModelStoreTest, ReceivesAFileAgainAfterALostConnection) {
  auto store = open();
  ASSERT_TRUE(store.add(piece(0, 5)).ok());
  store.forget_unfinished();
  EXPECT_EQ(files(), 0U);
  EXPECT_TRUE(store.add(piece(0, kText.size())).value());
}

TEST_F(ModelStoreTest, RemovesFilesOfADeadBackendOnly) {
  auto writer = open();
  ASSERT_TRUE(writer.add(piece(0, 5)).ok());
  std::ofstream(directory_.path() / "store" / "abandoned.part") << "half a model";
  std::ofstream(directory_.path() / "store" / "notes.txt") << "somebody's";
  EXPECT_EQ(files(), 3U);
  const auto other = open();
  EXPECT_EQ(files(), 2U);
  EXPECT_TRUE(writer.add(piece(5, kText.size())).value()) << "a file with a living writer stays";
}

TEST_F(ModelStoreTest, NamesAnUnusableDirectory) {
  std::ofstream(directory_.path() / "file") << "no directory";
  const auto refused = ModelStore::open(directory_.path() / "file" / "store").status();
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(refused, "model_store"));
}

}  // namespace
}  // namespace gpulet::store
