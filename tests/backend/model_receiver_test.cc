#include "backend/model_receiver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "gpulet/base/sha256.h"
#include "tests/net/loop.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::backend::model_receiver_test {
namespace {

const std::string kText = "the bytes of a model";

std::string sha256() { return sha256_of(kText); }

ModelPiece piece(std::uint64_t offset, std::size_t length) {
  const auto view = std::as_bytes(std::span(kText)).subspan(offset, length);
  return {sha256(), offset, kText.size(), Bytes::own({view.begin(), view.end()})};
}

class ModelReceiverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = store::ModelStore::open(directory_.path());
    ASSERT_TRUE(store.ok());
    receiver_.emplace(io_.get_executor(), std::move(store).value(),
                      [this](node::BackendEvent event) { events_.push_back(std::move(event)); });
  }
  bool wait_for_events(std::size_t count) {
    return net::testing::run_until(
               io_, [&] { return events_.size() >= count; }, std::chrono::seconds(20)) &&
           events_.size() == count;
  }

  support::TemporaryFolder directory_;
  net::asio::io_context io_;
  std::vector<node::BackendEvent> events_;
  std::optional<ModelReceiver> receiver_;
};

TEST_F(ModelReceiverTest, ReportsEveryPieceInOrderAndTheCompleteFile) {
  ASSERT_TRUE(receiver_->add(piece(0, 5)).ok());
  ASSERT_TRUE(receiver_->add(piece(5, 5)).ok());
  ASSERT_TRUE(receiver_->add(piece(10, kText.size() - 10)).ok());
  ASSERT_TRUE(wait_for_events(3));
  EXPECT_EQ(std::get<node::ModelProgress>(events_[0]).stored_bytes, 5U);
  EXPECT_EQ(std::get<node::ModelProgress>(events_[1]).stored_bytes, 10U);
  EXPECT_EQ(std::get<node::ModelProgress>(events_[1]).total_bytes, kText.size());
  EXPECT_EQ(std::get<node::ModelStored>(events_[2]).file, receiver_->find(sha256()));
}

TEST_F(ModelReceiverTest, ForgetsAnUnfinishedFileAndAcceptsItAgain) {
  ASSERT_TRUE(receiver_->add(piece(0, 5)).ok());
  receiver_->forget_unfinished();
  ASSERT_TRUE(receiver_->add(piece(0, kText.size())).ok());
  ASSERT_TRUE(wait_for_events(2));
  EXPECT_TRUE(std::holds_alternative<node::ModelStored>(events_[1]));
}

TEST_F(ModelReceiverTest, RejectsMoreBytesThanItRequests) {
  ModelPiece huge = piece(0, 5);
  huge.data = Bytes::own(std::vector<std::byte>((64U << 20U) + 1));
  EXPECT_EQ(receiver_->add(std::move(huge)).code(), StatusCode::overloaded);
}

TEST_F(ModelReceiverTest, ReportsNothingAfterItsEnd) {
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(receiver_->add(piece(0, kText.size())).ok());
  receiver_.reset();
  io_.restart();
  io_.run();
  EXPECT_TRUE(events_.empty());
}

}  // namespace
}  // namespace gpulet::backend::model_receiver_test
