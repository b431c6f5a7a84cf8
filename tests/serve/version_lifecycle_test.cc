#include "serve/dispatch/version_lifecycle.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

#include "tests/support/serve/dispatch_parts.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::version_lifecycle_test {
namespace {

using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::DispatchParts;
using testing::even_route;
using testing::tags_of;

ServedModel wider(const std::string& name) {
  ServedModel model = byte_model(name, 100, 0);
  model.outputs.at(0).shape = {2};
  return with_sizes(model).value();
}

Request request(std::uint64_t tag) { return byte_request(tag, at(0), at(1000)); }

struct Versions {
  DispatchParts parts{{byte_model("a", 100, 0)}};
  DispatchOutput out;
};

TEST(VersionLifecycle, WaitingRequestsFollowToAnHeirWithTheSameTensors) {
  Versions one;
  DispatchParts& parts = one.parts;
  parts.push(0, request(1));
  const ModelIndex heir = parts.versions.add(byte_model("a", 50, 0));
  parts.take_touched();
  parts.versions.succeed(0, heir, at(1), one.out);
  EXPECT_TRUE(one.out.answers.empty());
  EXPECT_EQ(parts.queues.queued(0), 0U);
  EXPECT_EQ(parts.queues.queued(heir), 1U);
  EXPECT_EQ(parts.queues.queue_for(0), heir);
  EXPECT_EQ(parts.records.counted_as(0), heir);
  EXPECT_EQ(parts.take_touched(), std::vector{heir});
}

TEST(VersionLifecycle, WithOtherTensorsWaitingRequestsAreAnswered) {
  Versions one;
  DispatchParts& parts = one.parts;
  parts.push(0, request(1));
  const ModelIndex heir = parts.versions.add(wider("a"));
  parts.versions.succeed(0, heir, at(1), one.out);
  ASSERT_EQ(one.out.answers.size(), 1U);
  EXPECT_EQ(one.out.answers[0].status.code(), StatusCode::unavailable);
  EXPECT_FALSE(parts.queues.queue_for(0));
  EXPECT_EQ(parts.queues.queued(heir), 0U);
  EXPECT_EQ(parts.records.counters(heir).failed, 1U);
}

// Each of them made a process end or its batch fail, and runs alone.
TEST(VersionLifecycle, SuspectsFollowToTheHeirAsSuspects) {
  Versions one;
  DispatchParts& parts = one.parts;
  Request suspect = request(1);
  suspect.crashes = 1;
  parts.push_suspect(0, std::move(suspect));
  parts.push(0, request(2));
  parts.queues.of(0).lost = "why";
  const ModelIndex heir = parts.versions.add(byte_model("a", 100, 0));
  parts.versions.succeed(0, heir, at(1), one.out);
  EXPECT_EQ(parts.queues.queued(0), 0U);
  EXPECT_EQ(parts.queues.of(heir).lost, "why");
  EXPECT_EQ(tags_of(parts.queues.of(heir).requests.take_all()), std::vector<std::uint64_t>{2});
  EXPECT_EQ(tags_of(parts.queues.of(heir).suspects.take_due_before(kNever)),
            std::vector<std::uint64_t>{1});
}

TEST(VersionLifecycle, EarlierVersionsFollowToTheLastHeir) {
  Versions one;
  DispatchParts& parts = one.parts;
  const ModelIndex second = parts.versions.add(byte_model("a", 100, 0));
  const ModelIndex third = parts.versions.add(byte_model("a", 100, 0));
  const ModelIndex fourth = parts.versions.add(wider("a"));
  parts.versions.succeed(0, second, at(1), one.out);
  parts.versions.succeed(second, third, at(2), one.out);
  EXPECT_EQ(parts.queues.queue_for(0), third);
  parts.versions.succeed(third, fourth, at(3), one.out);
  for (const ModelIndex version : {ModelIndex{0}, second, third})
    EXPECT_FALSE(parts.queues.queue_for(version));
  EXPECT_EQ(parts.queues.queue_for(fourth), fourth);
}

TEST(VersionLifecycle, AClosedVersionAndThoseBeforeItTakeNothingBack) {
  Versions one;
  DispatchParts& parts = one.parts;
  const ModelIndex heir = parts.versions.add(byte_model("a", 100, 0));
  parts.versions.succeed(0, heir, at(1), one.out);
  parts.push(heir, request(1));
  parts.push_suspect(heir, request(2));
  parts.versions.close(heir, {StatusCode::not_found, "removed"}, at(2), one.out);
  EXPECT_EQ(tags_of(one.out.answers), (std::vector<std::uint64_t>{1, 2}));
  for (const ModelIndex version : {ModelIndex{0}, heir}) {
    EXPECT_FALSE(parts.queues.queue_for(version));
    EXPECT_EQ(parts.queues.of(version).closed.code(), StatusCode::not_found);
  }
}

TEST(VersionLifecycle, AnHeirThatWasClosedIsOpenAgain) {
  Versions one;
  DispatchParts& parts = one.parts;
  const ModelIndex heir = parts.versions.add(byte_model("a", 100, 0));
  parts.versions.close(heir, {StatusCode::unavailable, "closed"}, at(1), one.out);
  parts.versions.succeed(0, heir, at(2), one.out);
  EXPECT_EQ(parts.queues.queue_for(heir), heir);
}

TEST(VersionLifecycle, AFlushSendsWhatTheGpuletsHaveRoomFor) {
  Versions one;
  DispatchParts& parts = one.parts;
  parts.gpulets.set_routes({even_route(1, {0})}, at(0));
  for (std::uint64_t tag = 1; tag <= 11; ++tag) parts.push(0, request(tag));
  parts.versions.flush(0, at(0), one.out);
  ASSERT_EQ(one.out.batches.size(), kBatchesInFlight);
  for (const BatchToSend& sent : one.out.batches) EXPECT_EQ(sent.batch.count, 4U);
  EXPECT_EQ(parts.queues.queued(0), 3U);
  parts.versions.flush(0, at(0), one.out);
  EXPECT_EQ(one.out.batches.size(), kBatchesInFlight);
}

TEST(VersionLifecycle, AVersionIsUnusedWithoutSlotsRequestsAndBatches) {
  Versions one;
  DispatchParts& parts = one.parts;
  EXPECT_TRUE(parts.versions.unused(0));
  parts.gpulets.set_routes({even_route(1, {0})}, at(0));
  EXPECT_FALSE(parts.versions.unused(0));
  parts.push(0, request(1));
  const Batch batch = parts.send(1, 0, 1, at(0));
  parts.gpulets.set_routes({}, at(1));
  EXPECT_FALSE(parts.versions.unused(0)) << "a batch is in flight";
  EXPECT_EQ(parts.finish(batch.id, true, at(10)).requests.size(), 1U);
  EXPECT_TRUE(parts.versions.unused(0));
  parts.push_suspect(0, request(2));
  EXPECT_FALSE(parts.versions.unused(0));
  parts.versions.refuse_waiting(0, {StatusCode::unavailable, "why"}, at(11), one.out);
  EXPECT_TRUE(parts.versions.unused(0));
  parts.versions.forget(0);
  EXPECT_EQ(parts.versions.add(byte_model("b", 100, 0)), 0U);
  EXPECT_EQ(parts.records.counters(0).failed, 0U);
}

TEST(VersionLifecycle, ChangedRulesReorderWhatWaits) {
  Versions one;
  DispatchParts& parts = one.parts;
  parts.push(0, request(1));
  parts.take_touched();
  parts.versions.change(0, byte_model("a", 70, 0));
  EXPECT_TRUE(parts.take_touched().empty());
  ServedModel with_rules = byte_model("a", 70, 0);
  with_rules.queue.emplace();
  parts.versions.change(0, with_rules);
  EXPECT_EQ(parts.take_touched(), std::vector<ModelIndex>{0});
  EXPECT_EQ(parts.queues.queued(0), 1U);
}

// Whatever takes over from what, each request waits in the queue of the current version, or was
// answered once.
RC_GTEST_PROP(VersionLifecycleProperty, EachRequestFollowsOrIsAnswered, ()) {
  Versions one;
  DispatchParts& parts = one.parts;
  ModelIndex current = 0;
  std::set<std::uint64_t> waiting;
  std::set<ModelIndex> earlier;
  std::uint64_t next_tag = 1;
  const int steps = *rc::gen::inRange(1, 40);
  for (int step = 0; step < steps; ++step) {
    switch (*rc::gen::inRange(0, 5)) {
      case 0: {
        const ModelIndex heir =
            parts.versions.add(*rc::gen::inRange(0, 3) == 0 ? wider("a") : byte_model("a", 100, 0));
        const bool follows = parts.queues.same_tensors(current, heir);
        parts.versions.succeed(current, heir, at(step), one.out);
        RC_ASSERT(one.out.answers.size() == (follows ? 0U : waiting.size()));
        if (!follows) waiting.clear();
        one.out.answers.clear();
        earlier.insert(current);
        current = heir;
        break;
      }
      case 1:
        if (!earlier.empty()) {
          const ModelIndex oldest = *earlier.begin();
          RC_ASSERT(parts.versions.unused(oldest));
          parts.versions.forget(oldest);
          earlier.erase(oldest);
        }
        break;
      case 2:
        waiting.insert(next_tag);
        parts.push_suspect(current, request(next_tag++));
        break;
      default:
        waiting.insert(next_tag);
        parts.push(current, request(next_tag++));
        break;
    }
    RC_ASSERT(parts.queues.queued(current) == waiting.size());
    for (const ModelIndex version : earlier) {
      RC_ASSERT(parts.queues.queued(version) == 0U);
      const std::optional<ModelIndex> queue = parts.queues.queue_for(version);
      RC_ASSERT(!queue || *queue == current);
    }
  }
}

}  // namespace
}  // namespace gpulet::serve::version_lifecycle_test
