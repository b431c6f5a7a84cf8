#include "frontend/model_piece.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "frontend/file_look.h"
#include "gpulet/core/sha256.h"
#include "tests/net/loop.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::frontend {
namespace {

std::string text_in(const Bytes& bytes) {
  const auto view = bytes.view();
  return {reinterpret_cast<const char*>(view.data()), view.size()};
}

class ModelPieceTest : public ::testing::Test {
 protected:
  ModelPieceTest() { hash("the bytes of a model"); }

  void hash(const std::string& text) {
    file_.path = folder_.write("model.pt", text);
    file_.look = look_at(file_.path).value();
    sha256_ = sha256_of(text);
  }
  serve::ModelPiece read(std::uint64_t offset) {
    return read_piece(sha256_, file_, offset, buffers_);
  }

  support::TemporaryFolder folder_;
  ModelFile file_;
  std::string sha256_;
  net::BufferPool buffers_{{}};
};

TEST_F(ModelPieceTest, APieceIsAsLongAsOneMayBeOrGoesToTheEnd) {
  hash(std::string(serve::kModelPieceBytes, 'a') + "rest");
  const serve::ModelPiece first = read(0);
  EXPECT_EQ(text_in(first.data), std::string(serve::kModelPieceBytes, 'a'));
  EXPECT_EQ(first.total_bytes, serve::kModelPieceBytes + 4);
  EXPECT_EQ(first.sha256, sha256_);
  const serve::ModelPiece last = read(serve::kModelPieceBytes);
  EXPECT_EQ(text_in(last.data), "rest");
  EXPECT_EQ(last.offset, serve::kModelPieceBytes);
  EXPECT_FALSE(last.changed);
}

TEST_F(ModelPieceTest, BehindTheEndAndWithoutAFileThereIsNothing) {
  EXPECT_EQ(read(1000).total_bytes, 0U);
  EXPECT_FALSE(read(1000).changed);
  std::filesystem::remove(file_.path);
  EXPECT_EQ(read(0).total_bytes, 0U);
  EXPECT_FALSE(read(0).changed);
}

TEST_F(ModelPieceTest, AFileThatIsNotTheOneThatWasHashedSaysSo) {
  std::filesystem::resize_file(file_.path, 5);
  EXPECT_TRUE(read(0).changed) << "truncated";
  EXPECT_TRUE(read(0).data.empty());
  hash("the bytes of a model");
  std::filesystem::last_write_time(
      file_.path, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(read(0).changed) << "written again, as long as before";
  hash("the bytes of a model");
  const auto time = std::filesystem::last_write_time(file_.path);
  std::filesystem::rename(file_.path, folder_.path() / "old.pt");
  folder_.write("model.pt", "THE BYTES OF A MODEL");
  std::filesystem::last_write_time(file_.path, time);
  EXPECT_TRUE(read(0).changed) << "another file";
}

// Opening a pipe would wait for whoever writes to it.
TEST_F(ModelPieceTest, APipeInItsPlaceHoldsNobodyUp) {
  std::filesystem::remove(file_.path);
  ASSERT_EQ(::mkfifo(file_.path.c_str(), 0600), 0);
  EXPECT_EQ(read(0).total_bytes, 0U);
}

TEST_F(ModelPieceTest, PiecesAreReadOnAnotherThreadAndHandedOverInOrder) {
  hash("0123456789");
  net::testing::Loop loop;
  std::vector<std::string> pieces;
  std::vector<std::thread::id> threads;
  ModelPieces reader(loop.context());
  for (std::uint64_t offset = 0; offset < ModelPieces::kMostWaiting; ++offset) {
    EXPECT_TRUE(
        reader.read(BackendId{1}, sha256_, file_, offset % 10, [&](serve::ModelPiece piece) {
          pieces.push_back(text_in(piece.data));
          threads.push_back(std::this_thread::get_id());
        }));
  }
  EXPECT_FALSE(reader.read(BackendId{1}, sha256_, file_, 0, [](const serve::ModelPiece&) {}))
      << "more than may wait";
  bool other = false;
  EXPECT_TRUE(reader.read(BackendId{2}, sha256_, file_, 0, [&](const serve::ModelPiece&) {
    other = true;
  })) << "which is nobody else's fault";
  ASSERT_TRUE(loop.run_until([&] { return other; }));
  ASSERT_EQ(pieces.size(), ModelPieces::kMostWaiting);
  EXPECT_EQ(pieces[0], "0123456789");
  EXPECT_EQ(pieces[9], "9");
  EXPECT_EQ(threads[0], std::this_thread::get_id());
  EXPECT_TRUE(reader.read(BackendId{1}, sha256_, file_, 0, [](const serve::ModelPiece&) {}))
      << "there is room again";
}

}  // namespace
}  // namespace gpulet::frontend
