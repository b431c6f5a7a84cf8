#include "frontend/catalogue/model_fetcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

namespace gpulet::frontend {
namespace {

constexpr std::size_t kPiece = 4;  // stands for kModelPieceBytes

// Members with files, and a store. Answers come when the test asks for them.
class FetcherTest : public ::testing::Test, private ModelFetcher::Owner {
 protected:
  void run() {
    while (!tasks_.empty()) {
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }
  // Fetches, runs, and returns the outcome.
  Status fetched(std::vector<std::string> members, std::vector<std::string> files) {
    std::optional<Status> outcome;
    fetcher_.fetch(std::move(members), std::move(files), [&](Status status) { outcome = status; });
    run();
    EXPECT_TRUE(outcome.has_value());
    return outcome.value_or(Status(StatusCode::internal, "no outcome"));
  }

  std::map<std::string, std::map<std::string, std::string>> members_;  // member -> files
  std::map<std::string, std::string> stored_;
  std::set<std::string> bad_for_the_store_;
  std::map<std::string, int> asked_;  // by member
  int outstanding_ = 0;
  int most_outstanding_ = 0;
  std::deque<std::function<void()>> tasks_;

 private:
  void answer(const std::string& member, const ModelPieceRequest& request,
              const ModelFetcher::OnPiece& done) {
    --outstanding_;
    const auto from = members_.find(member);
    if (from == members_.end()) return done(Status(StatusCode::unavailable, "not connected"));
    ModelPiece piece;
    piece.sha256 = request.sha256;
    const auto file = from->second.find(request.sha256);
    if (file != from->second.end()) {
      const std::string text = file->second.substr(request.offset, kPiece);
      const auto bytes = std::as_bytes(std::span(text));
      piece.offset = request.offset;
      piece.total_bytes = file->second.size();
      piece.data = Bytes::own({bytes.begin(), bytes.end()});
    }
    done(std::move(piece));
  }
  Result<bool> stored(const ModelPiece& piece) {
    if (piece.total_bytes == 0) return Status(StatusCode::not_found, "no such file");
    if (bad_for_the_store_.contains(piece.sha256)) return Status(StatusCode::invalid, "bad");
    std::string& text = stored_[piece.sha256];
    if (piece.offset == 0) text.clear();
    const auto view = piece.data.view();
    text.append(reinterpret_cast<const char*>(view.data()), view.size());
    return text.size() == piece.total_bytes;
  }

  void request(const std::string& member, const ModelPieceRequest& piece,
               ModelFetcher::OnPiece done) override {
    ++asked_[member];
    most_outstanding_ = std::max(most_outstanding_, ++outstanding_);
    tasks_.emplace_back(
        [this, member, piece, done = std::move(done)] { answer(member, piece, done); });
  }
  void store(ModelPiece piece, ModelFetcher::OnStored done) override {
    tasks_.emplace_back(
        [this, piece = std::move(piece), done = std::move(done)] { done(stored(piece)); });
  }

 protected:
  ModelFetcher fetcher_{*this};
};

TEST_F(FetcherTest, GetsFilesPieceByPiece) {
  members_["f1"] = {{"aa", "0123456789"}, {"bb", "xyz"}};
  EXPECT_TRUE(fetched({"f1"}, {"aa", "bb"}).ok());
  EXPECT_EQ(stored_, members_["f1"]);
  EXPECT_EQ(asked_["f1"], 4);
}

TEST_F(FetcherTest, AsksTheNextMember) {
  members_["f1"] = {{"bb", "xyz"}};
  members_["f2"] = {{"aa", "0123456789"}};
  EXPECT_TRUE(fetched({"f0", "f1", "f2"}, {"aa", "bb"}).ok());
  EXPECT_EQ(stored_.at("aa"), "0123456789");
  EXPECT_EQ(stored_.at("bb"), "xyz");
}

TEST_F(FetcherTest, BeginsAgainWithTheNextMemberWhereOneEndsInTheMiddle) {
  members_["f1"] = members_["f2"] = {{"aa", "0123456789"}};
  std::optional<Status> outcome;
  fetcher_.fetch({"f1", "f2"}, {"aa"}, [&](Status status) { outcome = status; });
  for (int steps = 0; steps < 3; ++steps) {
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
  }
  members_.erase("f1");
  run();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_TRUE(outcome->ok());
  EXPECT_EQ(stored_.at("aa"), "0123456789");
}

TEST_F(FetcherTest, FailsWhereNobodyHasTheFile) {
  members_["f1"] = {{"bb", "xyz"}};
  EXPECT_EQ(fetched({"f1"}, {"aa", "bb"}).code(), StatusCode::not_found);
  EXPECT_EQ(fetched({"f0"}, {"aa"}).code(), StatusCode::unavailable);
  EXPECT_EQ(fetched({}, {"aa"}).code(), StatusCode::unavailable);
  bad_for_the_store_ = {"bb"};
  EXPECT_EQ(fetched({"f1"}, {"bb"}).code(), StatusCode::invalid);
  EXPECT_TRUE(fetched({}, {}).ok());
}

TEST_F(FetcherTest, HasOneRequestInFlight) {
  members_["f1"] = {{"aa", "0123456789"}, {"bb", "xyz"}};
  int done = 0;
  for (const char* const file : {"aa", "bb", "cc", "aa"})
    fetcher_.fetch({"f1"}, {file}, [&done](const Status&) { ++done; });
  run();
  EXPECT_EQ(done, 4);
  EXPECT_EQ(most_outstanding_, 1);
  EXPECT_EQ(stored_, members_["f1"]);
}

}  // namespace
}  // namespace gpulet::frontend
