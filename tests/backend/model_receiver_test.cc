#include "gpulet/backend/model_receiver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "gpulet/core/sha256.h"
#include "tests/net/loop.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::backend {
namespace {

const std::string kText = "the bytes of a model";

std::string sha256() { return sha256_of(kText); }

serve::ModelPiece piece(std::uint64_t offset, std::size_t length) {
  const auto view = std::as_bytes(std::span(kText)).subspan(offset, length);
  return {sha256(), offset, kText.size(), Bytes::own({view.begin(), view.end()})};
}

class ModelReceiverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = ModelStore::open(directory_.path());
    ASSERT_TRUE(store.ok());
    receiver_.emplace(io_.get_executor(), std::move(store).value(),
                      [this](serve::BackendEvent event) { told_.push_back(std::move(event)); });
  }
  bool told(std::size_t events) {
    return net::testing::run_until(
               io_, [&] { return told_.size() >= events; }, std::chrono::seconds(20)) &&
           told_.size() == events;
  }

  support::TemporaryFolder directory_;
  net::asio::io_context io_;
  std::vector<serve::BackendEvent> told_;
  std::optional<ModelReceiver> receiver_;
};

TEST_F(ModelReceiverTest, TellsOfEveryPieceInTurnAndOfTheWholeFile) {
  ASSERT_TRUE(receiver_->take(piece(0, 5)).ok());
  ASSERT_TRUE(receiver_->take(piece(5, 5)).ok());
  ASSERT_TRUE(receiver_->take(piece(10, kText.size() - 10)).ok());
  ASSERT_TRUE(told(3));
  EXPECT_EQ(std::get<serve::ModelProgress>(told_[0]).stored_bytes, 5U);
  EXPECT_EQ(std::get<serve::ModelProgress>(told_[1]).stored_bytes, 10U);
  EXPECT_EQ(std::get<serve::ModelProgress>(told_[1]).total_bytes, kText.size());
  EXPECT_EQ(std::get<serve::ModelStored>(told_[2]).file, receiver_->find(sha256()));
}

TEST_F(ModelReceiverTest, ForgetsWhatIsUnfinishedAndTakesItFromTheStart) {
  ASSERT_TRUE(receiver_->take(piece(0, 5)).ok());
  receiver_->forget_unfinished();
  ASSERT_TRUE(receiver_->take(piece(0, kText.size())).ok());
  ASSERT_TRUE(told(2));
  EXPECT_TRUE(std::holds_alternative<serve::ModelStored>(told_[1]));
}

TEST_F(ModelReceiverTest, RefusesMoreThanItCouldHaveAskedFor) {
  serve::ModelPiece huge = piece(0, 5);
  huge.data = Bytes::own(std::vector<std::byte>((64U << 20U) + 1));
  EXPECT_EQ(receiver_->take(std::move(huge)).code(), StatusCode::overloaded);
}

TEST_F(ModelReceiverTest, EndsWithWorkLeftAndTellsNobody) {
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(receiver_->take(piece(0, kText.size())).ok());
  receiver_.reset();
  io_.restart();
  io_.run();
  EXPECT_TRUE(told_.empty());
}

}  // namespace
}  // namespace gpulet::backend
