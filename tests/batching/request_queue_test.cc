#include "gpulet/batching/request_queue.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace gpulet::batching::request_queue_test {
namespace {

constexpr Time at(int ms) { return Time(std::chrono::milliseconds(ms)); }
constexpr Duration ms(int count) { return std::chrono::milliseconds(count); }

Request request(std::uint64_t tag, std::uint32_t priority, int deadline_ms, int arrived_ms = 0) {
  Request made;
  made.tag = tag;
  made.client = ClientId{1};
  made.priority = priority;
  made.deadline = at(deadline_ms);
  made.trace.arrived = at(arrived_ms);
  return made;
}

QueueRules two_levels(const QueuePolicy& policy = {}) {
  QueueRules rules;
  rules.priority_levels = 2;
  rules.default_priority_level = 2;
  rules.default_policy = policy;
  return rules;
}

std::vector<std::uint64_t> tags(const std::vector<Request>& requests) {
  std::vector<std::uint64_t> all;
  for (const Request& one : requests) all.push_back(one.tag);
  return all;
}
using Tags = std::vector<std::uint64_t>;

// ---- DeadlineQueue

Request due_at(std::uint64_t tag, int deadline_ms, std::uint64_t client = 1) {
  Request made;
  made.tag = tag;
  made.client = ClientId{client};
  made.deadline = at(deadline_ms);
  return made;
}

TEST(DeadlineQueueTest, ShorterDeadlineOvertakesAndTiesKeepTheirOrder) {
  DeadlineQueue queue;
  queue.push(due_at(1, 50));
  queue.push(due_at(2, 20));
  queue.push(due_at(3, 50));
  queue.push(due_at(4, 20));
  EXPECT_EQ(queue.front_deadline(), at(20));
  EXPECT_EQ(tags(queue.take_due_from(at(0), 10)), (std::vector<std::uint64_t>{2, 4, 1, 3}));
  EXPECT_TRUE(queue.empty());
}

TEST(DeadlineQueueTest, RequestsPastTheirDeadlineAreNeverTheMostUrgent) {
  DeadlineQueue queue;
  for (int i = 0; i < 6; ++i) queue.push(due_at(static_cast<std::uint64_t>(i), 10 * i));
  EXPECT_EQ(queue.count_due_from(at(25)), 3U);
  EXPECT_EQ(queue.first_deadline_from(at(25)), at(30));
  EXPECT_EQ(tags(queue.take_due_from(at(25), 2)), (std::vector<std::uint64_t>{3, 4}));
  EXPECT_EQ(tags(queue.take_due_before(at(25))), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(tags(queue.take_due_from(at(0), 9)), (std::vector<std::uint64_t>{5}));
}

TEST(DeadlineQueueTest, RemovesAllRequestsOfAClient) {
  DeadlineQueue queue;
  queue.push(due_at(1, 10, 7));
  queue.push(due_at(2, 20, 8));
  queue.push(due_at(3, 30, 7));
  EXPECT_EQ(queue.remove_client(ClientId{7}), 2U);
  EXPECT_EQ(tags(queue.take_due_from(at(0), 9)), (std::vector<std::uint64_t>{2}));
}

RC_GTEST_PROP(DeadlineQueueProperty, ReturnsEveryRequestOnce, ()) {
  const auto deadlines = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 100));
  DeadlineQueue queue;
  for (std::size_t i = 0; i < deadlines.size(); ++i) queue.push(due_at(i, deadlines[i]));
  std::vector<std::uint64_t> returned;
  while (!queue.empty()) {
    const Time pivot = at(*rc::gen::inRange(0, 110));
    const std::vector<Request> some =
        *rc::gen::arbitrary<bool>()
            ? queue.take_due_from(pivot, *rc::gen::inRange<std::size_t>(1, 5))
            : queue.take_due_before(pivot);
    RC_ASSERT(std::is_sorted(some.begin(), some.end(), [](const Request& a, const Request& b) {
      return a.deadline < b.deadline;
    }));
    for (const Request& one : some) returned.push_back(one.tag);
  }
  std::sort(returned.begin(), returned.end());
  RC_ASSERT(returned.size() == deadlines.size());
  RC_ASSERT(std::adjacent_find(returned.begin(), returned.end()) == returned.end());
}

// ---- PriorityQueue

TEST(PriorityQueueTest, HigherLevelsLeaveFirstAndDeadlinesOrderALevel) {
  PriorityQueue queue(two_levels());
  queue.push(request(1, 2, 10));
  queue.push(request(2, 1, 90));
  queue.push(request(3, 1, 80));
  EXPECT_EQ(tags(queue.take_due_from(at(0), 1)), Tags{3});
  EXPECT_EQ(tags(queue.take_due_from(at(0), 1)), Tags{2});
  EXPECT_EQ(tags(queue.take_due_from(at(0), 1)), Tags{1});
}

TEST(PriorityQueueTest, NoPriorityAndOneBeyondTheLevelsMeanTheDefaultLevel) {
  QueueRules rules = two_levels();
  rules.priority_levels = 3;
  PriorityQueue queue(rules);
  queue.push(request(1, 3, 10));
  queue.push(request(2, 0, 20));
  queue.push(request(3, 9, 30));
  queue.push(request(4, 1, 40));
  EXPECT_EQ(tags(queue.take_due_from(at(0), 1)), Tags{4});
  EXPECT_EQ(tags(queue.take_due_from(at(0), 2)), (Tags{2, 3}));
}

TEST(PriorityQueueTest, SortsABatchOfSeveralLevelsByDeadline) {
  PriorityQueue queue(two_levels());
  queue.push(request(1, 2, 10));
  queue.push(request(2, 1, 90));
  EXPECT_EQ(tags(queue.take_due_from(at(0), 5)), (Tags{1, 2}));
}

TEST(PriorityQueueTest, RejectsRequestsAtTheirQueueTimeout) {
  PriorityQueue queue(two_levels({.default_timeout = ms(20)}));
  queue.push(request(1, 1, 90, 0));
  queue.push(request(2, 1, 90, 5));
  EXPECT_EQ(queue.next_timeout(), at(20));
  EXPECT_TRUE(queue.take_rejected(at(19)).empty());
  EXPECT_EQ(tags(queue.take_rejected(at(20))), Tags{1});
  EXPECT_EQ(queue.size(), 1U);
  EXPECT_EQ(queue.next_timeout(), at(25));
}

TEST(PriorityQueueTest, DelayedRequestsLeaveLastOfTheirLevel) {
  QueueRules rules = two_levels();
  rules.level_policies[1] = {.timeout_action = TimeoutAction::delay, .default_timeout = ms(20)};
  PriorityQueue queue(rules);
  queue.push(request(1, 1, 50, 0));
  queue.push(request(2, 1, 90, 10));
  queue.push(request(3, 2, 10, 0));
  EXPECT_TRUE(queue.take_rejected(at(20)).empty());
  EXPECT_EQ(tags(queue.take_due_from(at(0), 1)), Tags{2});
  EXPECT_EQ(tags(queue.take_due_from(at(0), 1)), Tags{1});
  EXPECT_EQ(tags(queue.take_due_from(at(0), 1)), Tags{3});
}

TEST(PriorityQueueTest, ARequestMayShortenItsQueueTimeoutIfItsLevelAllowsIt) {
  QueueRules rules = two_levels({.default_timeout = ms(20)});
  rules.level_policies[1] = {.default_timeout = ms(20), .allow_timeout_override = true};
  const auto timeout_of = [&rules](std::uint32_t priority, int asked_ms) {
    PriorityQueue queue(rules);
    Request one = request(1, priority, 90);
    one.queue_timeout = ms(asked_ms);
    queue.push(std::move(one));
    return queue.next_timeout();
  };
  EXPECT_EQ(timeout_of(1, 5), at(5));
  EXPECT_EQ(timeout_of(1, 50), at(20));
  EXPECT_EQ(timeout_of(1, 0), at(20));
  EXPECT_EQ(timeout_of(2, 5), at(20));
}

TEST(PriorityQueueTest, ARequestOfAnEarlierBatchHasNoQueueTimeout) {
  PriorityQueue queue(two_levels({.default_timeout = ms(20)}));
  Request back = request(1, 1, 90);
  back.trace.dispatched = at(3);
  queue.push(std::move(back));
  EXPECT_EQ(queue.next_timeout(), kNever);
  EXPECT_TRUE(queue.take_rejected(at(80)).empty());
}

TEST(PriorityQueueTest, EachLevelHasItsOwnBound) {
  QueueRules rules = two_levels({.max_queue_size = 2});
  rules.level_policies[1] = {
      .timeout_action = TimeoutAction::delay, .default_timeout = ms(5), .max_queue_size = 1};
  PriorityQueue queue(rules);
  EXPECT_FALSE(queue.full_for(request(1, 1, 90)));
  queue.push(request(1, 1, 90));
  EXPECT_TRUE(queue.full_for(request(2, 1, 90)));
  EXPECT_TRUE(queue.take_rejected(at(9)).empty());
  EXPECT_TRUE(queue.full_for(request(2, 1, 90)));  // delayed requests count
  queue.push(request(3, 0, 90));
  EXPECT_FALSE(queue.full_for(request(4, 2, 90)));
}

TEST(PriorityQueueTest, AnUrgentRequestOfALowLevelDoesNotShrinkTheBatchesOfOthers) {
  PriorityQueue queue(two_levels());
  for (std::uint64_t i = 0; i < 4; ++i) queue.push(request(i, 1, 100));
  queue.push(request(9, 2, 12));
  const std::vector<Duration> execution = {ms(10), ms(11), ms(12), ms(13), ms(14)};
  EXPECT_EQ(queue.largest_batch(at(0), execution, 5, at(0)), 4U);
  EXPECT_EQ(queue.first_deadline_from(at(0), 4), at(100));
  EXPECT_EQ(queue.first_deadline_from(at(0), 5), at(12));
}

TEST(PendingRequestsTest, RulesMayChangeWhileRequestsAreQueued) {
  PendingRequests waiting;
  waiting.push(request(1, 2, 10));
  waiting.push(request(2, 1, 20));
  EXPECT_FALSE(waiting.set_rules(std::nullopt));
  EXPECT_TRUE(waiting.set_rules(two_levels()));
  EXPECT_FALSE(waiting.set_rules(two_levels()));
  EXPECT_EQ(tags(waiting.take_due_from(at(0), 1)), Tags{2});
  EXPECT_TRUE(waiting.set_rules(std::nullopt));
  EXPECT_EQ(waiting.levels(), nullptr);
  EXPECT_EQ(tags(waiting.take_all()), Tags{1});
}

// ---- a reference that sorts its list before every answer

class SortedList {
 public:
  explicit SortedList(QueueRules rules) : rules_(std::move(rules)) {}

  void push(const Request& request) {
    const std::uint32_t level = rules_.level_of(request.priority);
    const QueuePolicy& policy = rules_.policy_of(level);
    Time passes = kNever;
    if (request.trace.dispatched == Time()) {
      std::vector<Duration> timeouts;
      if (policy.default_timeout > Duration::zero()) timeouts.push_back(policy.default_timeout);
      if (policy.allow_timeout_override && request.queue_timeout > Duration::zero())
        timeouts.push_back(request.queue_timeout);
      if (!timeouts.empty())
        passes = request.trace.arrived + *std::min_element(timeouts.begin(), timeouts.end());
    }
    all_.push_back({request, level, false, ++entered_, passes});
  }

  std::vector<std::uint64_t> take_rejected(Time now) {
    std::stable_sort(all_.begin(), all_.end(), [](const Entry& a, const Entry& b) {
      return std::tuple(a.level, a.passes, a.request.deadline, a.request.client, a.request.tag) <
             std::tuple(b.level, b.passes, b.request.deadline, b.request.client, b.request.tag);
    });
    std::vector<std::uint64_t> rejected;
    std::vector<Entry> kept;
    for (Entry& one : all_) {
      const bool passed = one.passes <= now;
      if (passed && rules_.policy_of(one.level).timeout_action == TimeoutAction::reject) {
        rejected.push_back(one.request.tag);
        continue;
      }
      if (passed) {
        one.passes = kNever;
        one.delayed = true;
        one.entered = ++entered_;
      }
      kept.push_back(std::move(one));
    }
    all_ = std::move(kept);
    return rejected;
  }

  template <typename Wanted>
  std::vector<Request> take(const Wanted& wanted, std::size_t count) {
    sort();
    std::vector<Request> taken;
    std::erase_if(all_, [&](const Entry& one) {
      if (taken.size() == count || !wanted(one.request)) return false;
      taken.push_back(one.request);
      return true;
    });
    return taken;
  }

  // In dispatch order.
  [[nodiscard]] std::vector<Request> due_from(Time time) {
    sort();
    std::vector<Request> due;
    for (const Entry& one : all_) {
      if (one.request.deadline >= time) due.push_back(one.request);
    }
    return due;
  }
  [[nodiscard]] std::vector<Request> all() { return due_from(Time::min()); }
  [[nodiscard]] Time next_timeout() const {
    Time next = kNever;
    for (const Entry& one : all_) next = std::min(next, one.passes);
    return next;
  }
  [[nodiscard]] std::size_t of_level(std::uint32_t level) const {
    return static_cast<std::size_t>(std::count_if(
        all_.begin(), all_.end(), [level](const Entry& one) { return one.level == level; }));
  }

 private:
  struct Entry {
    Request request;
    std::uint32_t level = 0;
    bool delayed = false;
    std::uint64_t entered = 0;
    Time passes = kNever;
  };
  void sort() {
    std::sort(all_.begin(), all_.end(), [](const Entry& a, const Entry& b) {
      return std::tuple(a.level, a.delayed, a.request.deadline, a.entered) <
             std::tuple(b.level, b.delayed, b.request.deadline, b.entered);
    });
  }

  QueueRules rules_;
  std::vector<Entry> all_;
  std::uint64_t entered_ = 0;
};

QueuePolicy any_policy() {
  return {.timeout_action = *rc::gen::element(TimeoutAction::reject, TimeoutAction::delay),
          .default_timeout = ms(*rc::gen::element(0, 5, 20)),
          .allow_timeout_override = *rc::gen::arbitrary<bool>(),
          .max_queue_size = *rc::gen::element(0U, 1U, 3U)};
}

QueueRules any_rules() {
  QueueRules rules;
  rules.priority_levels = *rc::gen::inRange(0U, 4U);
  if (rules.priority_levels > 0)
    rules.default_priority_level = *rc::gen::inRange(1U, rules.priority_levels + 1);
  rules.default_policy = any_policy();
  for (std::uint32_t level = 1; level <= rules.priority_levels; ++level) {
    if (*rc::gen::arbitrary<bool>()) rules.level_policies[level] = any_policy();
  }
  return rules;
}

std::vector<Request> by_deadline(std::vector<Request> requests) {
  std::stable_sort(requests.begin(), requests.end(),
                   [](const Request& a, const Request& b) { return a.deadline < b.deadline; });
  return requests;
}

std::uint32_t largest_batch(const std::vector<Request>& due, const std::vector<Duration>& execution,
                            Time start) {
  std::uint32_t largest = 1;
  for (std::uint32_t n = 1; n <= std::min(due.size(), execution.size()); ++n) {
    const bool in_time = std::all_of(due.begin(), due.begin() + n, [&](const Request& one) {
      return start + execution[n - 1] <= one.deadline;
    });
    if (in_time) largest = n;
  }
  return largest;
}

RC_GTEST_PROP(PriorityQueueProperty, MatchesASortedList, ()) {
  const QueueRules rules = any_rules();
  PriorityQueue queue(rules);
  SortedList reference(rules);
  const std::vector<Duration> execution = {ms(3), ms(4), ms(6), ms(9), ms(9)};
  std::uint64_t tag = 0;
  int now = 0;
  const int steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < steps; ++step) {
    now += *rc::gen::inRange(0, 4);
    const Time pivot = at(now + *rc::gen::inRange(-5, 15));
    switch (*rc::gen::inRange(0, 10)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        Request one =
            request(++tag, *rc::gen::inRange(0U, 6U), now + *rc::gen::inRange(0, 30), now);
        one.client = ClientId{*rc::gen::inRange<std::uint64_t>(1, 4)};
        one.queue_timeout = ms(*rc::gen::element(0, 3, 50));
        if (*rc::gen::inRange(0, 6) == 0) one.trace.dispatched = at(now);
        const std::uint32_t level = rules.level_of(one.priority);
        const std::uint32_t most = rules.policy_of(level).max_queue_size;
        RC_ASSERT(queue.full_for(one) == (most > 0 && reference.of_level(level) >= most));
        reference.push(one);
        queue.push(std::move(one));
        break;
      }
      case 4:
        RC_ASSERT(tags(queue.take_rejected(at(now))) == reference.take_rejected(at(now)));
        break;
      case 5: {
        const std::size_t count = *rc::gen::inRange<std::size_t>(1, 5);
        const auto due = [pivot](const Request& one) { return one.deadline >= pivot; };
        RC_ASSERT(tags(queue.take_due_from(pivot, count)) ==
                  tags(by_deadline(reference.take(due, count))));
        break;
      }
      case 6: {
        const auto late = [pivot](const Request& one) { return one.deadline < pivot; };
        RC_ASSERT(tags(queue.take_due_before(pivot)) == tags(reference.take(late, tag)));
        break;
      }
      case 7: {
        if (queue.empty()) break;
        const std::uint64_t last = reference.all().back().tag;
        RC_ASSERT(queue.take_last().tag == last);
        reference.take([last](const Request& one) { return one.tag == last; }, 1);
        break;
      }
      case 8: {
        const ClientId gone{*rc::gen::inRange<std::uint64_t>(1, 4)};
        const auto of_gone = [gone](const Request& one) { return one.client == gone; };
        RC_ASSERT(queue.remove_client(gone) == reference.take(of_gone, tag).size());
        break;
      }
      default: {
        const std::uint64_t withdrawn = *rc::gen::inRange<std::uint64_t>(0, tag + 2);
        const ClientId client{*rc::gen::inRange<std::uint64_t>(1, 4)};
        const auto meant = [&](const Request& one) {
          return one.tag == withdrawn && one.client == client;
        };
        RC_ASSERT(queue.remove(client, withdrawn) == (reference.take(meant, 1).size() == 1));
      }
    }
    const std::vector<Request> due = reference.due_from(pivot);
    RC_ASSERT(queue.size() == reference.all().size());
    RC_ASSERT(queue.next_timeout() == reference.next_timeout());
    RC_ASSERT(queue.count_due_from(pivot) == due.size());
    if (!queue.empty())
      RC_ASSERT(queue.front_deadline() == by_deadline(reference.all()).front().deadline);
    if (due.empty()) continue;
    RC_ASSERT(queue.largest_batch(pivot, execution, 5, at(now)) ==
              largest_batch(due, execution, at(now)));
  }
}

}  // namespace
}  // namespace gpulet::batching::request_queue_test
