#include "serve/dispatch/batches_in_flight.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tests/support/serve/dispatched.h"

namespace gpulet::serve::batches_in_flight_test {
namespace {

using std::chrono::milliseconds;
using testing::at;
using testing::byte_request;

BatchInFlight batch_of(std::uint64_t gpulet, ModelIndex model, std::vector<Request> requests) {
  BatchInFlight batch;
  batch.gpulet = GpuletId{gpulet};
  batch.backend = BackendId{gpulet + 100};
  batch.model = model;
  batch.expected = milliseconds(10);
  batch.predicted_end = at(10);
  batch.requests = std::move(requests);
  return batch;
}

std::vector<Request> due_at(const std::vector<int>& deadlines_ms) {
  std::vector<Request> requests;
  for (const int deadline : deadlines_ms)
    requests.push_back(byte_request(requests.size() + 1, at(0), at(deadline)));
  return requests;
}

// The requests that are overdue by then, as batch and index. Marks them as answered.
std::vector<std::pair<BatchId, std::size_t>> answer(BatchesInFlight& batches, Time now) {
  std::vector<std::pair<BatchId, std::size_t>> overdue;
  batches.answer_overdue(now, [&](BatchInFlight& batch, std::size_t index) {
    batch.answered.resize(batch.requests.size());
    batch.answered[index] = true;
    for (const auto& [id, held] : batches.all()) {
      if (&held == &batch) overdue.emplace_back(id, index);
    }
  });
  return overdue;
}

TEST(BatchNumbers, AreConsecutiveAndTellWhichWereTaken) {
  BatchNumbers numbers(BatchId{7});
  EXPECT_FALSE(numbers.taken(BatchId{7}));
  EXPECT_EQ(numbers.take(), BatchId{7});
  EXPECT_EQ(numbers.take(), BatchId{8});
  EXPECT_FALSE(numbers.taken(BatchId{6})) << "of an earlier run";
  EXPECT_TRUE(numbers.taken(BatchId{7}));
  EXPECT_TRUE(numbers.taken(BatchId{8}));
  EXPECT_FALSE(numbers.taken(BatchId{9}));
}

TEST(BatchesInFlight, AreFoundByBatchGpuletAndModel) {
  BatchesInFlight batches(BatchId{1});
  EXPECT_TRUE(batches.empty());
  batches.add(BatchId{2}, batch_of(1, 4, due_at({50})));
  batches.add(BatchId{1}, batch_of(1, 0, due_at({50})));
  batches.add(BatchId{3}, batch_of(2, 4, due_at({50})));
  EXPECT_FALSE(batches.empty());
  EXPECT_EQ(batches.held_by(GpuletId{1}), (std::vector{BatchId{1}, BatchId{2}}));
  EXPECT_TRUE(batches.held_by(GpuletId{9}).empty());
  EXPECT_EQ(batches.holder_of(BatchId{3}), BackendId{102});
  EXPECT_FALSE(batches.holder_of(BatchId{4}));
  EXPECT_EQ(batches.find(BatchId{4}), nullptr);
  EXPECT_TRUE(batches.any_of(4));
  EXPECT_FALSE(batches.any_of(2));
  EXPECT_FALSE(batches.any_of(100));
  EXPECT_EQ(batches.take(BatchId{2}).gpulet, GpuletId{1});
  EXPECT_TRUE(batches.any_of(4)) << "gpulet 2 holds one";
  EXPECT_EQ(batches.take(BatchId{3}).model, 4U);
  EXPECT_FALSE(batches.any_of(4));
}

TEST(BatchesInFlight, KnowTheNumbersOfThisRunAfterTheBatchesEnded) {
  BatchesInFlight batches(BatchId{10});
  const BatchId id = batches.numbers().take();
  batches.add(id, batch_of(1, 0, due_at({50})));
  EXPECT_EQ(batches.take(id).requests.size(), 1U);
  EXPECT_TRUE(batches.was_sent(id));
  EXPECT_FALSE(batches.contains(id));
  EXPECT_FALSE(batches.was_sent(BatchId{11}));
}

TEST(BatchesInFlight, EachRequestIsOverdueOnceAfterItsDeadline) {
  BatchesInFlight batches(BatchId{1});
  batches.add(BatchId{1}, batch_of(1, 0, due_at({30, 20, 30})));
  EXPECT_EQ(batches.next_deadline(), at(20) + Duration(1));
  EXPECT_TRUE(answer(batches, at(20)).empty()) << "the deadline itself is in time";
  EXPECT_EQ(answer(batches, at(21)), (std::vector{std::pair(BatchId{1}, std::size_t{1})}));
  EXPECT_EQ(batches.next_deadline(), at(30) + Duration(1));
  EXPECT_EQ(answer(batches, at(40)).size(), 2U);
  EXPECT_EQ(batches.next_deadline(), kNever);
  EXPECT_TRUE(answer(batches, at(1000)).empty());
  EXPECT_TRUE(batches.contains(BatchId{1})) << "its gpulet still works for it";
}

TEST(BatchesInFlight, ABatchWithoutLimitIsNeverOverdue) {
  BatchesInFlight batches(BatchId{1});
  std::vector<Request> requests = due_at({20});
  requests[0].grace = Request::kNoLimit;
  batches.add(BatchId{1}, batch_of(1, 0, std::move(requests)));
  EXPECT_EQ(batches.next_deadline(), kNever);
  EXPECT_TRUE(answer(batches, at(1000)).empty());
}

TEST(BatchesInFlight, ATakenBatchHasNoDeadlineAnyMore) {
  BatchesInFlight batches(BatchId{1});
  batches.add(BatchId{1}, batch_of(1, 0, due_at({20})));
  EXPECT_EQ(batches.take(BatchId{1}).answer_by, at(20));
  EXPECT_EQ(batches.next_deadline(), kNever);
  EXPECT_TRUE(answer(batches, at(1000)).empty());
}

TEST(BatchesInFlight, AGpuletIsSilentAfterTheGraceAndSeveralDurations) {
  BatchesInFlight batches(BatchId{1});
  batches.add(BatchId{1}, batch_of(1, 0, due_at({50})));  // ends at 10 ms, takes 10 ms
  const std::set<GpuletId> one{GpuletId{1}};
  EXPECT_TRUE(batches.silent(milliseconds(5), at(90)).empty()) << "it may be slow";
  EXPECT_EQ(batches.silent(milliseconds(5), at(91)), one);
  EXPECT_TRUE(batches.silent(milliseconds(200), at(210)).empty());
  EXPECT_EQ(batches.silent(milliseconds(200), at(211)), one);
}

// Nothing is lost or counted twice, whatever comes and goes.
RC_GTEST_PROP(BatchesInFlightProperty, EveryBatchIsHeldUntilItIsTakenAndOverdueOnce, ()) {
  constexpr std::uint64_t kGpulets = 3;
  constexpr ModelIndex kModels = 3;
  struct Held {
    GpuletId gpulet;
    ModelIndex model;
    std::vector<int> deadlines;
    std::set<std::size_t> answered;
  };
  BatchesInFlight batches(BatchId{5});
  std::map<BatchId, Held> held;
  int now = 0;
  const int steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < steps; ++step) {
    now += *rc::gen::inRange(0, 10);
    switch (*rc::gen::inRange(0, 3)) {
      case 0: {
        const BatchId id = batches.numbers().take();
        Held one{GpuletId{*rc::gen::inRange<std::uint64_t>(0, kGpulets)},
                 *rc::gen::inRange<ModelIndex>(0, kModels),
                 {},
                 {}};
        const int count = *rc::gen::inRange(1, 5);
        for (int i = 0; i < count; ++i) one.deadlines.push_back(now + *rc::gen::inRange(0, 40));
        batches.add(id, batch_of(one.gpulet.value, one.model, due_at(one.deadlines)));
        RC_ASSERT(held.emplace(id, std::move(one)).second);
        break;
      }
      case 1:
        if (!held.empty()) {
          const auto which = *rc::gen::inRange<std::size_t>(0, held.size());
          const auto found = std::next(held.begin(), static_cast<std::ptrdiff_t>(which));
          const BatchInFlight taken = batches.take(found->first);
          RC_ASSERT(taken.requests.size() == found->second.deadlines.size());
          for (std::size_t i = 0; i < taken.requests.size(); ++i)
            RC_ASSERT(taken.is_answered(i) == found->second.answered.contains(i));
          held.erase(found);
        }
        break;
      default:
        for (const auto& [id, index] : answer(batches, at(now))) {
          Held& one = held.at(id);
          RC_ASSERT(one.answered.insert(index).second);
          RC_ASSERT(one.deadlines[index] < now);
        }
        for (const auto& [id, one] : held) {
          for (std::size_t i = 0; i < one.deadlines.size(); ++i)
            RC_ASSERT(one.answered.contains(i) || one.deadlines[i] >= now);
        }
        break;
    }
    RC_ASSERT(batches.all().size() == held.size());
    RC_ASSERT(batches.empty() == held.empty());
    Time next = kNever;
    for (const auto& [id, one] : held) {
      for (std::size_t i = 0; i < one.deadlines.size(); ++i) {
        if (!one.answered.contains(i)) next = std::min(next, at(one.deadlines[i]) + Duration(1));
      }
    }
    RC_ASSERT(batches.next_deadline() == next);
    std::size_t listed = 0;
    for (std::uint64_t id = 0; id < kGpulets; ++id) listed += batches.held_by(GpuletId{id}).size();
    RC_ASSERT(listed == held.size());
    for (ModelIndex model = 0; model < kModels; ++model) {
      RC_ASSERT(batches.any_of(model) ==
                std::any_of(held.begin(), held.end(),
                            [model](const auto& entry) { return entry.second.model == model; }));
    }
  }
}

}  // namespace
}  // namespace gpulet::serve::batches_in_flight_test
