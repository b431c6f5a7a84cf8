#include "frontend/catalogue/adoption.h"

#include <gtest/gtest.h>

#include <deque>
#include <span>
#include <string>
#include <utility>

namespace gpulet::frontend::adoption_test {
namespace {

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return Bytes::own({bytes.begin(), bytes.end()});
}

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.view().data()), bytes.size()};
}

// Reads come when the test answers them. One member gives files at once, if it has any.
class AdoptionTest : public ::testing::Test, private ModelFetcher::Owner, private Adoption::Owner {
 protected:
  struct Read {
    std::string text;
    Missing missing;
    CatalogueService::OnRead done;
  };

  void answer_read(Result<LoadedCatalogue> read) {
    const Read one = std::move(reads_.front());
    reads_.pop_front();
    one.done(std::move(read));
  }
  static LoadedCatalogue without(std::vector<std::string> missing) {
    LoadedCatalogue loaded;
    loaded.missing = std::move(missing);
    return loaded;
  }
  void adopt(const std::string& text) {
    adoption_.adopt(bytes_of(text), [this, text] { done_.push_back(text); });
  }

  net::asio::io_context io_{1};
  bool has_file_ = true;
  std::vector<std::string> requested_;
  std::deque<Read> reads_;
  std::vector<StatusCode> applied_;
  std::vector<std::string> done_;
  ModelFetcher fetcher_{*this};
  Adoption adoption_{io_, fetcher_, *this};

 private:
  void request(const std::string& member, const ModelPieceRequest& piece,
               ModelFetcher::OnPiece done) override {
    EXPECT_EQ(member, "f1");
    requested_.push_back(piece.sha256);
    if (!has_file_) return done(Status(StatusCode::unavailable, "gone"));
    done(ModelPiece{piece.sha256, 0, 1, bytes_of("x"), false});
  }
  void store(ModelPiece /*piece*/, ModelFetcher::OnStored done) override { done(true); }
  void read_changes(Bytes text, Missing missing, CatalogueService::OnRead done) override {
    reads_.push_back({text_of(text), missing, std::move(done)});
  }
  void apply(Result<LoadedCatalogue> read, Done done) override {
    applied_.push_back(read.ok() ? StatusCode::ok : read.status().code());
    done();
  }
  [[nodiscard]] std::vector<std::string> members_with_files() const override { return {"f1"}; }
};

TEST_F(AdoptionTest, FetchesWhatIsMissingAndReadsAgain) {
  adopt("one");
  ASSERT_EQ(reads_.size(), 1U);
  EXPECT_EQ(reads_[0].missing, Missing::report);
  answer_read(without({"aa", "bb"}));
  EXPECT_EQ(requested_, (std::vector<std::string>{"aa", "bb"}));
  EXPECT_TRUE(done_.empty());
  ASSERT_EQ(reads_.size(), 1U);
  EXPECT_EQ(reads_[0].text, "one");
  answer_read(LoadedCatalogue());
  EXPECT_EQ(applied_, std::vector{StatusCode::ok});
  EXPECT_EQ(done_, std::vector<std::string>{"one"});
}

TEST_F(AdoptionTest, NeedsNoFileOfOthersWhereAllAreHere) {
  adopt("one");
  answer_read(LoadedCatalogue());
  EXPECT_TRUE(requested_.empty());
  EXPECT_EQ(done_, std::vector<std::string>{"one"});
}

TEST_F(AdoptionTest, UsesTheOwnFileWhereNobodyHasTheContent) {
  has_file_ = false;
  adopt("one");
  answer_read(without({"aa"}));
  ASSERT_EQ(reads_.size(), 1U);
  EXPECT_EQ(reads_[0].missing, Missing::use_own);
  answer_read(Status(StatusCode::not_found, "no file"));
  EXPECT_EQ(applied_, std::vector{StatusCode::not_found});
  EXPECT_EQ(done_, std::vector<std::string>{"one"}) << "the first attempt is over";
}

TEST_F(AdoptionTest, LaterChangesReplaceThoseBeingRead) {
  adopt("one");
  adopt("two");
  ASSERT_EQ(reads_.size(), 2U);
  answer_read(LoadedCatalogue());
  EXPECT_TRUE(applied_.empty());
  answer_read(LoadedCatalogue());
  EXPECT_EQ(applied_, std::vector{StatusCode::ok});
  EXPECT_EQ(done_, (std::vector<std::string>{"one", "two"}));
}

}  // namespace
}  // namespace gpulet::frontend::adoption_test
