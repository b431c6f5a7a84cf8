// Priority levels and queue policies of models, as clients see them.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/serve/dispatched.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::priorities_test {
namespace {

using std::chrono::milliseconds;
using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::card_profile;
using testing::echo;
using testing::even_route;
using testing::World;

ServedModel with_queue(QueueRules rules) {
  ServedModel model = byte_model("a", 100, 0);
  model.queue = std::move(rules);
  return model;
}

QueueRules two_levels() {
  QueueRules rules;
  rules.priority_levels = 2;
  rules.default_priority_level = 2;
  return rules;
}

Request of_level(std::uint64_t tag, std::uint32_t priority, int arrived_ms, int slo_ms = 100) {
  Request made = byte_request(tag, at(arrived_ms), at(arrived_ms + slo_ms));
  made.priority = priority;
  return made;
}

// Sends one batch of four (10 ms) at a time.
class PrioritiesTest : public ::testing::Test {
 protected:
  void serve(const QueueRules& rules) {
    dispatcher_.emplace(std::vector<ServedModel>{with_queue(rules)}, 100, BatchId{1});
    dispatcher_->set_routes({even_route(1, {0})}, at(0));
  }
  void arrive(Request request) {
    const Time now = request.trace.arrived;
    dispatcher_->enqueue(0, std::move(request), now, out_);
  }
  // What was sent and answered up to then.
  DispatchOutput pump(int ms) {
    dispatcher_->pump(at(ms), out_);
    return std::exchange(out_, {});
  }
  static std::vector<std::uint64_t> tags(const Batch& batch) {
    std::vector<std::uint64_t> all;
    for (const Bytes& slice : batch.inputs)
      all.push_back(std::to_integer<std::uint64_t>(slice.view()[0]));
    std::sort(all.begin(), all.end());
    return all;
  }

  std::optional<Dispatcher> dispatcher_;
  DispatchOutput out_;
};

TEST_F(PrioritiesTest, HigherLevelsAreBatchedFirst) {
  serve(two_levels());
  for (std::uint64_t tag = 1; tag <= 12; ++tag) arrive(of_level(tag, 0, 10));
  for (std::uint64_t tag = 21; tag <= 22; ++tag) arrive(of_level(tag, 1, 11));
  const DispatchOutput sent = pump(11);
  ASSERT_EQ(sent.batches.size(), 2U);
  EXPECT_EQ(tags(sent.batches[0].batch), (std::vector<std::uint64_t>{1, 2, 21, 22}));
  EXPECT_EQ(tags(sent.batches[1].batch), (std::vector<std::uint64_t>{3, 4, 5, 6}));
}

TEST_F(PrioritiesTest, OnlyTheFullLevelRefuses) {
  QueueRules rules = two_levels();
  rules.level_policies[2].max_queue_size = 3;
  serve(rules);
  dispatcher_->set_ready(GpuletId{1}, false, at(0));
  for (std::uint64_t tag = 1; tag <= 4; ++tag) arrive(of_level(tag, 2, 10));
  arrive(of_level(9, 1, 10));
  const DispatchOutput out = pump(10);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].request.tag, 4U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::overloaded);
  EXPECT_EQ(dispatcher_->queues().queued(0), 4U);
}

TEST_F(PrioritiesTest, RejectsAtTheQueueTimeout) {
  QueueRules rules = two_levels();
  rules.default_policy.default_timeout = milliseconds(20);
  serve(rules);
  dispatcher_->set_ready(GpuletId{1}, false, at(0));
  arrive(of_level(1, 1, 10));
  EXPECT_TRUE(pump(10).answers.empty());
  EXPECT_EQ(dispatcher_->next_wake(), at(30));
  const DispatchOutput out = pump(30);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::too_late);
  EXPECT_EQ(dispatcher_->records().counters(0).dropped, 1U);
}

TEST_F(PrioritiesTest, DelayedRequestsAreBatchedLastInTheirLevel) {
  QueueRules rules = two_levels();
  rules.default_policy = {.timeout_action = TimeoutAction::delay,
                          .default_timeout = milliseconds(20)};
  serve(rules);
  dispatcher_->set_ready(GpuletId{1}, false, at(0));
  for (std::uint64_t tag = 1; tag <= 4; ++tag) arrive(of_level(tag, 1, 10));
  EXPECT_TRUE(pump(10).batches.empty());
  for (std::uint64_t tag = 11; tag <= 14; ++tag) arrive(of_level(tag, 1, 25));
  EXPECT_TRUE(pump(30).answers.empty());
  dispatcher_->set_ready(GpuletId{1}, true, at(31));
  const DispatchOutput sent = pump(31);
  ASSERT_EQ(sent.batches.size(), 2U);
  EXPECT_EQ(tags(sent.batches[0].batch), (std::vector<std::uint64_t>{11, 12, 13, 14}));
  EXPECT_EQ(tags(sent.batches[1].batch), (std::vector<std::uint64_t>{1, 2, 3, 4}));
}

TEST_F(PrioritiesTest, DelayedRequestsKeepTheirDeadline) {
  QueueRules rules = two_levels();
  rules.default_policy = {.timeout_action = TimeoutAction::delay,
                          .default_timeout = milliseconds(20)};
  serve(rules);
  dispatcher_->set_ready(GpuletId{1}, false, at(0));
  arrive(of_level(1, 1, 10));
  EXPECT_TRUE(pump(109).answers.empty());
  const DispatchOutput out = pump(111);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::too_late);
}

TEST_F(PrioritiesTest, NewRulesReorderPendingRequests) {
  serve(two_levels());
  dispatcher_->set_ready(GpuletId{1}, false, at(0));
  for (std::uint64_t tag = 1; tag <= 4; ++tag) arrive(of_level(tag, 2, 10));
  for (std::uint64_t tag = 5; tag <= 8; ++tag) arrive(of_level(tag, 1, 11));
  ServedModel plain = byte_model("a", 100, 0);
  dispatcher_->versions().change(0, plain);
  dispatcher_->set_ready(GpuletId{1}, true, at(12));
  const DispatchOutput sent = pump(12);
  ASSERT_EQ(sent.batches.size(), 2U);
  EXPECT_EQ(tags(sent.batches[0].batch), (std::vector<std::uint64_t>{1, 2, 3, 4}));
}

// ---- with the engine around it

std::vector<ServedModel> one_model(const QueueRules& rules, double slo_ms) {
  ServedModel model = byte_model("a", slo_ms, 50);
  model.queue = rules;
  return {model};
}

Time at_s(double time) { return Time(from_seconds(time)); }

TEST(PrioritiesOfClients, HighPriorityIsServedDuringABurst) {
  World world({}, one_model(two_levels(), 400), card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  constexpr std::uint64_t kBurst = 400;
  for (std::uint64_t tag = 1; tag <= kBurst; ++tag) world.request_at(at_s(5), "a", tag);
  for (std::uint64_t tag = kBurst + 1; tag <= kBurst + 4; ++tag)
    world.request_at(at_s(5.001), "a", tag, {}, 1);
  world.run_until(at_s(8));
  std::size_t failed = 0;
  for (const auto& [tag, answers] : world.replies()) {
    ASSERT_EQ(answers.size(), 1U);
    if (tag <= kBurst) {
      failed += answers[0].reply.status.ok() ? 0 : 1;
    } else {
      EXPECT_TRUE(answers[0].reply.status.ok()) << answers[0].reply.status.to_string();
    }
  }
  EXPECT_GT(failed, 0U);  // the burst was more than the device can serve
}

TEST(PrioritiesOfClients, ATimeoutIsAQueueTimeoutIfThePolicyAllowsIt) {
  QueueRules rules;
  rules.default_policy = {.default_timeout = milliseconds(500), .allow_timeout_override = true};
  World world({}, one_model(rules, 3000), card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  constexpr std::uint64_t kBurst = 600;
  for (std::uint64_t tag = 1; tag <= kBurst; ++tag)
    world.request_at(at_s(5), "a", tag, milliseconds(20));
  world.run_until(at_s(10));
  std::size_t rejected = 0;
  std::size_t served_later = 0;
  for (const auto& [tag, answers] : world.replies()) {
    ASSERT_EQ(answers.size(), 1U);
    const Duration after = answers[0].time - at_s(5);
    if (answers[0].reply.status.ok()) {
      served_later += after > milliseconds(20) ? 1 : 0;
    } else {
      EXPECT_EQ(answers[0].reply.status.code(), StatusCode::too_late);
      EXPECT_LE(after, milliseconds(21));
      ++rejected;
    }
  }
  EXPECT_GT(rejected, 0U);
  EXPECT_GT(served_later, 0U);  // what had left the queue by then goes on
}

}  // namespace
}  // namespace gpulet::serve::priorities_test
