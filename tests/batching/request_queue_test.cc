#include "gpulet/batching/request_queue.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace gpulet::batching {
namespace {

constexpr Time at(int ms) { return Time(std::chrono::milliseconds(ms)); }

Request request(std::uint64_t tag, int deadline_ms, std::uint64_t client = 1) {
  Request made;
  made.tag = tag;
  made.client = ClientId{client};
  made.deadline = at(deadline_ms);
  return made;
}

std::vector<std::uint64_t> tags(const std::vector<Request>& requests) {
  std::vector<std::uint64_t> all;
  for (const Request& one : requests) all.push_back(one.tag);
  return all;
}

TEST(RequestQueueTest, ShorterDeadlineOvertakesAndTiesKeepTheirOrder) {
  RequestQueue queue;
  queue.push(request(1, 50));
  queue.push(request(2, 20));
  queue.push(request(3, 50));
  queue.push(request(4, 20));
  EXPECT_EQ(queue.front_deadline(), at(20));
  EXPECT_EQ(tags(queue.take_due_from(at(0), 10)), (std::vector<std::uint64_t>{2, 4, 1, 3}));
  EXPECT_TRUE(queue.empty());
}

TEST(RequestQueueTest, HopelessRequestsAreNeverTheMostUrgent) {
  RequestQueue queue;
  for (int i = 0; i < 6; ++i) queue.push(request(static_cast<std::uint64_t>(i), 10 * i));
  EXPECT_EQ(queue.count_due_from(at(25)), 3U);
  EXPECT_EQ(queue.first_deadline_from(at(25)), at(30));
  EXPECT_EQ(tags(queue.take_due_from(at(25), 2)), (std::vector<std::uint64_t>{3, 4}));
  EXPECT_EQ(tags(queue.take_due_before(at(25))), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(tags(queue.take_due_from(at(0), 9)), (std::vector<std::uint64_t>{5}));
}

TEST(RequestQueueTest, ClientThatWentAwayLeavesNothingBehind) {
  RequestQueue queue;
  queue.push(request(1, 10, 7));
  queue.push(request(2, 20, 8));
  queue.push(request(3, 30, 7));
  EXPECT_EQ(queue.remove_client(ClientId{7}), 2U);
  EXPECT_EQ(tags(queue.take_due_from(at(0), 9)), (std::vector<std::uint64_t>{2}));
}

RC_GTEST_PROP(RequestQueueProperty, EveryRequestLeavesOnce, ()) {
  const auto deadlines = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 100));
  RequestQueue queue;
  for (std::size_t i = 0; i < deadlines.size(); ++i) queue.push(request(i, deadlines[i]));
  std::vector<std::uint64_t> left;
  while (!queue.empty()) {
    const Time pivot = at(*rc::gen::inRange(0, 110));
    const std::vector<Request> some =
        *rc::gen::arbitrary<bool>()
            ? queue.take_due_from(pivot, *rc::gen::inRange<std::size_t>(1, 5))
            : queue.take_due_before(pivot);
    RC_ASSERT(std::is_sorted(some.begin(), some.end(), [](const Request& a, const Request& b) {
      return a.deadline < b.deadline;
    }));
    for (const Request& one : some) left.push_back(one.tag);
  }
  std::sort(left.begin(), left.end());
  RC_ASSERT(left.size() == deadlines.size());
  RC_ASSERT(std::adjacent_find(left.begin(), left.end()) == left.end());
}

}  // namespace
}  // namespace gpulet::batching
