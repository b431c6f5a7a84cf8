#include "frontend/frames/local_door.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontend/frames/shared_batches.h"
#include "tests/net/loop.h"

namespace gpulet::frontend::local_door_test {
namespace {

constexpr BackendId kOne{1};
constexpr BackendId kTwo{2};
constexpr std::size_t kImage = 602'112;

class LocalDoorTest : public ::testing::Test, private LocalDoor::Owner {
 protected:
  LocalDoorTest() {
    LocalDoor::Owner& owner = *this;
    auto opened = LocalDoor::open(loop_.executor(), owner);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    door_ = std::move(opened).value();
  }
  [[nodiscard]] net::StreamSocket show(const LocalOffer& offer, const std::string& secret) {
    auto opened = net::open_local(loop_.executor(), offer.name, offer.user, secret);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return std::move(opened).value();
  }
  // Whether the frontend closed the socket without a word.
  [[nodiscard]] bool is_refused(net::StreamSocket socket) {
    socket.non_blocking(true);
    return loop_.run_until([&] {
      char byte = 0;
      boost::system::error_code error;
      socket.receive(net::asio::buffer(&byte, 1), 0, error);
      return error && error != net::asio::error::would_block;
    });
  }

  net::testing::Loop loop_;
  std::unique_ptr<LocalDoor> door_;
  std::vector<BackendId> arrived_;

 private:
  void on_local(BackendId backend, net::StreamSocket socket) override {
    arrived_.push_back(backend);
    sockets_.push_back(std::move(socket));
  }

  std::vector<net::StreamSocket> sockets_;
};

TEST_F(LocalDoorTest, ABackendIsKnownByItsSecret) {
  const LocalOffer one = door_->offer(kOne);
  const LocalOffer two = door_->offer(kTwo);
  EXPECT_EQ(one.name, two.name);
  EXPECT_NE(one.secret, two.secret);
  const net::StreamSocket second = show(two, two.secret);
  ASSERT_TRUE(loop_.run_until([&] { return arrived_.size() == 1; }));
  const net::StreamSocket first = show(one, one.secret);
  ASSERT_TRUE(loop_.run_until([&] { return arrived_.size() == 2; }));
  EXPECT_EQ(arrived_, (std::vector{kTwo, kOne}));
}

TEST_F(LocalDoorTest, ASecretOfNoOfferIsRefused) {
  const LocalOffer offer = door_->offer(kOne);
  EXPECT_TRUE(is_refused(show(offer, net::draw_local_secret())));
  std::string almost = offer.secret;
  almost.back() = almost.back() == '0' ? '1' : '0';
  EXPECT_TRUE(is_refused(show(offer, almost)));
  EXPECT_TRUE(arrived_.empty());
}

TEST_F(LocalDoorTest, ASecretIsGoodOnce) {
  const LocalOffer offer = door_->offer(kOne);
  const net::StreamSocket first = show(offer, offer.secret);
  ASSERT_TRUE(loop_.run_until([&] { return arrived_.size() == 1; }));
  EXPECT_TRUE(is_refused(show(offer, offer.secret)));
  EXPECT_EQ(arrived_.size(), 1U);
}

TEST_F(LocalDoorTest, AnOfferEndsWithItsConnectionOrWithTheNextOffer) {
  const LocalOffer withdrawn = door_->offer(kOne);
  door_->withdraw(kOne);
  const LocalOffer replaced = door_->offer(kTwo);
  const LocalOffer last = door_->offer(kTwo);
  EXPECT_TRUE(is_refused(show(withdrawn, withdrawn.secret)));
  EXPECT_TRUE(is_refused(show(replaced, replaced.secret)));
  const net::StreamSocket good = show(last, last.secret);
  ASSERT_TRUE(loop_.run_until([&] { return arrived_.size() == 1; }));
  EXPECT_EQ(arrived_.front(), kTwo);
}

// ---- SharedBatches

class SharedBatchesTest : public ::testing::Test {
 protected:
  [[nodiscard]] Bytes request() { return pool_.take(kImage).value().freeze(); }
  [[nodiscard]] static Batch batch_of(std::uint64_t id, std::vector<Bytes> inputs) {
    Batch batch;
    batch.id = {id};
    batch.gpulet = {7};
    batch.model = "a";
    batch.count = 2;
    batch.inputs = std::move(inputs);
    return batch;
  }

  net::BufferPool pool_{{.max_idle_bytes = 64U << 20U, .max_used_bytes = 64U << 20U}};
  std::shared_ptr<net::SharedMemory> memory_ = pool_.share().value();
};

TEST_F(SharedBatchesTest, NamesThePlacesOfTheInputs) {
  SharedBatches batches(memory_);
  const Bytes one = request();
  const Bytes other = request();
  const auto named = batches.share(batch_of(1, {one.slice(0, 1000), other, one.slice(1000, 8)}));
  ASSERT_TRUE(named.has_value());
  EXPECT_TRUE(named->inputs.empty());
  EXPECT_EQ(named->id, BatchId{1});
  EXPECT_EQ(named->model, "a");
  const std::uint64_t begin = memory_->find(one)->offset;
  EXPECT_EQ(named->shared,
            (std::vector<SharedSlice>{{begin, 1000}, *memory_->find(other), {begin + 1000, 8}}));
}

TEST_F(SharedBatchesTest, SendsABatchWithAnInputFromElsewhere) {
  SharedBatches batches(memory_);
  const Bytes elsewhere = Bytes::own(std::vector<std::byte>(10));
  EXPECT_FALSE(batches.share(batch_of(1, {request(), elsewhere})).has_value());
  EXPECT_FALSE(batches.share(batch_of(2, {})).has_value());
  EXPECT_FALSE(batches.share(batch_of(3, {request(), Bytes()})).has_value());
  const Bytes one = request();
  std::vector<Bytes> many;
  for (std::size_t i = 0; i <= kMaxSharedSlices; ++i) many.push_back(one.slice(i, 1));
  EXPECT_FALSE(batches.share(batch_of(4, std::move(many))).has_value());
}

TEST_F(SharedBatchesTest, KeepsTheInputsUntilTheAnswer) {
  SharedBatches batches(memory_);
  const std::uint64_t place = memory_->find(request())->offset;
  ASSERT_TRUE(batches.share(batch_of(1, {request()})).has_value());
  EXPECT_NE(memory_->find(request())->offset, place) << "the first place is in use";
  batches.answered({2});
  EXPECT_GT(pool_.used_bytes(), 0U);
  batches.answered({1});
  EXPECT_EQ(pool_.used_bytes(), 0U);
}

TEST_F(SharedBatchesTest, NeverReusesTheInputsOfAnUnansweredBatch) {
  std::uint64_t unanswered = 0;
  std::uint64_t answered = 0;
  {
    SharedBatches batches(memory_);
    const Bytes one = request();
    const Bytes other = request();
    unanswered = memory_->find(one)->offset;
    answered = memory_->find(other)->offset;
    ASSERT_TRUE(batches.share(batch_of(1, {one})).has_value());
    ASSERT_TRUE(batches.share(batch_of(2, {other})).has_value());
    batches.answered({2});
  }
  std::vector<Bytes> later;
  bool reused_answered = false;
  for (int i = 0; i < 50; ++i) {
    later.push_back(request());
    const auto place = memory_->find(later.back());
    ASSERT_TRUE(place.has_value());
    EXPECT_NE(place->offset, unanswered);
    reused_answered = reused_answered || place->offset == answered;
  }
  EXPECT_TRUE(reused_answered);
}

}  // namespace
}  // namespace gpulet::frontend::local_door_test
