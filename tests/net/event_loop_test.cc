#include "gpulet/net/event_loop.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

namespace gpulet::net {
namespace {

using namespace std::chrono_literals;

class AlarmTest : public ::testing::Test {
 protected:
  // Both alarms have expired, so that both handlers are queued before the first runs.
  void ring_in_one_turn(const std::function<void()>& first) {
    Alarm earlier(io_);
    earlier.set(now() - 2s, first);
    alarm_->set(now() - 1s, [this] { ++rung_; });
    io_.run();
  }

  asio::io_context io_;
  std::optional<Alarm> alarm_{std::in_place, io_};
  int rung_ = 0;
};

TEST_F(AlarmTest, RingsInOrder) {
  std::vector<int> order;
  Alarm later(io_);
  later.set_after(2ms, [&] { order.push_back(2); });
  alarm_->set_after(1ms, [&] { order.push_back(1); });
  io_.run();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(AlarmTest, DoesNotRingAfterCancelEvenIfExpired) {
  ring_in_one_turn([this] { alarm_->cancel(); });
  EXPECT_EQ(rung_, 0);
}

TEST_F(AlarmTest, DoesNotRingAfterDestructionEvenIfExpired) {
  ring_in_one_turn([this] { alarm_.reset(); });
  EXPECT_EQ(rung_, 0);
}

TEST_F(AlarmTest, RingsForTheLatestSetOnly) {
  int last = 0;
  ring_in_one_turn([&] { alarm_->set(now(), [&] { ++last; }); });
  EXPECT_EQ(rung_, 0);
  EXPECT_EQ(last, 1);
}

TEST_F(AlarmTest, MayBeSetInItsCallback) {
  std::function<void()> again = [&] {
    if (++rung_ < 3) alarm_->set_after(0ms, again);
  };
  alarm_->set_after(0ms, again);
  io_.run();
  EXPECT_EQ(rung_, 3);
}

}  // namespace
}  // namespace gpulet::net
