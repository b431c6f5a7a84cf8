#include "gpulet/net/places.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace gpulet::net {
namespace {

using namespace std::chrono_literals;

constexpr Place::TimePoint kNow{1h};

class Connection final : public Place::Holder {
 public:
  Connection(Places& places, const std::string& address, State state, Duration age)
      : state_(state), since_(kNow - age), place_(places.take(address, kNow)) {
    if (place_) place_->set_holder(this);
  }
  [[nodiscard]] Standing standing() const override { return {state_, since_}; }
  void give_way() override {
    gave_way = true;
    place_.reset();
  }
  [[nodiscard]] bool has_place() const { return place_ != nullptr; }
  [[nodiscard]] bool reserved() const { return place_ && place_->reserved(); }

  bool gave_way = false;

 private:
  State state_;
  Place::TimePoint since_;
  std::unique_ptr<Place> place_;
};

using State = Place::Holder::State;

class PlacesTest : public ::testing::Test {
 protected:
  Connection& add(const std::string& address, State state, Duration age = 0s) {
    all_.push_back(std::make_unique<Connection>(*places_, address, state, age));
    return *all_.back();
  }
  void limit(const PlaceLimits& limits) { places_ = std::make_unique<Places>(limits); }

  std::unique_ptr<Places> places_;
  std::vector<std::unique_ptr<Connection>> all_;
};

TEST_F(PlacesTest, SilentOnesGiveWayTheOldestFirst) {
  limit({.general = 3});
  const Connection& younger = add("a", State::silent, 1s);
  const Connection& oldest = add("b", State::silent, 3s);
  const Connection& idle = add("c", State::idle, 60s);
  EXPECT_TRUE(add("d", State::busy).has_place());
  EXPECT_TRUE(oldest.gave_way);
  EXPECT_FALSE(younger.gave_way);
  EXPECT_FALSE(idle.gave_way);
  EXPECT_EQ(places_->taken(), 3U);
}

TEST_F(PlacesTest, IdleOnesGiveWayAfterAWhileAndBusyOnesNever) {
  limit({.general = 3});
  const Connection& busy = add("a", State::busy, 100s);
  const Connection& idle = add("b", State::idle, 60s);
  const Connection& just_now = add("c", State::idle, 1s);
  EXPECT_TRUE(add("d", State::busy).has_place());
  EXPECT_TRUE(idle.gave_way);
  EXPECT_FALSE(add("e", State::busy).has_place());
  EXPECT_FALSE(busy.gave_way);
  EXPECT_FALSE(just_now.gave_way);
  EXPECT_EQ(places_->turned_away(), 1U);
}

TEST_F(PlacesTest, SomeAreKeptBackAndNeverHeldBySilence) {
  limit({.general = 1, .reserve = 1});
  EXPECT_FALSE(add("a", State::busy).reserved());
  const Connection& silent = add("b", State::silent);
  EXPECT_TRUE(silent.reserved());
  EXPECT_TRUE(add("c", State::busy).reserved());
  EXPECT_TRUE(silent.gave_way);
  EXPECT_FALSE(add("d", State::busy).has_place());
}

TEST_F(PlacesTest, AnAddressHasABoundOfItsOwn) {
  limit({.general = 8, .reserve = 1, .per_address = 2});
  const Connection& other = add("b", State::silent, 100s);
  const Connection& silent = add("a", State::silent);
  add("a", State::busy);
  EXPECT_FALSE(add("a", State::busy).reserved());
  EXPECT_TRUE(silent.gave_way) << "one of the same address";
  EXPECT_FALSE(other.gave_way);
  EXPECT_TRUE(add("a", State::busy).reserved());
  EXPECT_FALSE(add("a", State::busy).has_place());
  EXPECT_FALSE(add("b", State::busy).reserved());
}

TEST_F(PlacesTest, ManyBecomeFreeAtOnce) {
  limit({.general = 640});
  for (int i = 0; i < 640; ++i) add("a", State::silent, std::chrono::seconds(i));
  EXPECT_TRUE(add("b", State::busy).has_place());
  EXPECT_EQ(places_->gave_way(), 10U);
}

TEST_F(PlacesTest, AreGivenBackAfterTheTableIsGone) {
  limit({.general = 2});
  add("a", State::busy);
  places_.reset();
  all_.clear();
}

TEST(AddressKey, IsOneForANetworkOfIpv6AndForBothFormsOfIpv4) {
  const auto key = [](const char* text) { return address_key(asio::ip::make_address(text)); };
  EXPECT_EQ(key("2001:db8::1"), key("2001:db8::ffff:1"));
  EXPECT_NE(key("2001:db8::1"), key("2001:db8:0:1::1"));
  EXPECT_EQ(key("10.0.0.1"), key("::ffff:10.0.0.1"));
  EXPECT_NE(key("10.0.0.1"), key("10.0.0.2"));
}

}  // namespace
}  // namespace gpulet::net
