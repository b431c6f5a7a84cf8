#include "serve/dispatch/model_queues.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/serve/dispatch_parts.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::model_queues_test {
namespace {

using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::tags_of;

Request request(std::uint64_t tag, std::uint64_t client = 1) {
  Request made = byte_request(tag, at(0), at(100));
  made.client = ClientId{client};
  return made;
}

void push(ModelQueues& queues, ModelIndex model, Request&& one) {
  queues.of(model).requests.push(std::move(one));
  queues.list(model);
}
void push_suspect(ModelQueues& queues, ModelIndex model, Request&& one) {
  queues.of(model).suspects.push(std::move(one));
  queues.list(model);
}

bool any(ModelIndex) { return true; }

TEST(ModelQueue, ARequestWhoseProcessCrashedWaitsToRunAlone) {
  ModelQueue queue;
  Request crashed;
  crashed.crashes = 1;
  queue.push(Request());
  queue.push(std::move(crashed));
  EXPECT_EQ(queue.requests.size(), 1U);
  EXPECT_EQ(queue.suspects.size(), 1U);
}

TEST(ModelQueues, AForgottenIndexIsUsedAgainAndStartsEmpty) {
  ModelQueues queues(10);
  EXPECT_EQ(queues.add(byte_model("a", 100, 0)), 0U);
  EXPECT_EQ(queues.add(byte_model("b", 100, 0)), 1U);
  queues.of(0).closed = {StatusCode::unavailable, "closed"};
  queues.list(0);
  queues.forget(0);
  EXPECT_TRUE(queues.models()[0].name.empty());
  EXPECT_TRUE(queues.empty());
  EXPECT_EQ(queues.add(byte_model("c", 100, 0)), 0U);
  EXPECT_EQ(queues.models()[0].name, "c");
  EXPECT_TRUE(queues.of(0).closed.ok());
  EXPECT_TRUE(queues.unlist(any).empty()) << "only the forgotten model was listed";
}

TEST(ModelQueues, SuspectsWaitAsWellButTheyDoNotFillTheQueue) {
  ModelQueues queues(2);
  const ModelIndex model = queues.add(byte_model("a", 100, 0));
  push_suspect(queues, model, request(1));
  push(queues, model, request(2));
  EXPECT_EQ(queues.queued(model), 2U);
  EXPECT_TRUE(queues.why_full(model, request(3)).ok());
  push(queues, model, request(3));
  EXPECT_EQ(queues.why_full(model, request(4)).code(), StatusCode::overloaded);
  EXPECT_EQ(tags_of(queues.take_all(model)), (std::vector<std::uint64_t>{2, 3, 1}));
  EXPECT_TRUE(queues.empty());
}

TEST(ModelQueues, ALevelHasABoundOfItsOwn) {
  ModelQueues queues(10);
  ServedModel with_levels = byte_model("a", 100, 0);
  with_levels.queue.emplace();
  with_levels.queue->priority_levels = 2;
  with_levels.queue->default_priority_level = 2;
  with_levels.queue->level_policies[2].max_queue_size = 1;
  const ModelIndex model = queues.add(with_levels);
  Request urgent = request(1);
  urgent.priority = 1;
  push(queues, model, request(2));
  EXPECT_EQ(queues.why_full(model, request(3)).code(), StatusCode::overloaded);
  EXPECT_TRUE(queues.why_full(model, urgent).ok());
}

TEST(ModelQueues, AChangeOfTheRulesKeepsEveryRequest) {
  ModelQueues queues(10);
  const ModelIndex model = queues.add(byte_model("a", 100, 0));
  push(queues, model, request(1));
  push(queues, model, request(2));
  EXPECT_FALSE(queues.change(model, byte_model("a", 50, 0)));
  EXPECT_EQ(queues.models()[model].slo_ms, 50);
  ServedModel with_levels = byte_model("a", 50, 0);
  with_levels.queue.emplace();
  EXPECT_TRUE(queues.change(model, with_levels));
  EXPECT_EQ(queues.queued(model), 2U);
  EXPECT_NE(queues.of(model).requests.levels(), nullptr);
}

TEST(ModelQueues, RequestsThatComeBackGoToTheHeirUnlessTheQueueIsClosed) {
  ModelQueues queues(10);
  const ModelIndex model = queues.add(byte_model("a", 100, 0));
  const ModelIndex heir = queues.add(byte_model("a", 100, 0));
  EXPECT_EQ(queues.queue_for(model), model);
  queues.of(model).heir = heir;
  EXPECT_EQ(queues.queue_for(model), heir);
  queues.of(model).heir.reset();
  queues.of(model).closed = {StatusCode::unavailable, "closed"};
  EXPECT_FALSE(queues.queue_for(model));
}

TEST(ModelQueues, TensorsDecideWhetherVersionsAreAlike) {
  ModelQueues queues(10);
  ServedModel wider = byte_model("a", 50, 7);
  wider.inputs.at(0).shape.push_back(2);
  const ModelIndex first = queues.add(byte_model("a", 100, 0));
  const ModelIndex alike = queues.add(byte_model("b", 50, 7));
  const ModelIndex other = queues.add(wider);
  EXPECT_TRUE(queues.same_tensors(first, alike));
  EXPECT_FALSE(queues.same_tensors(first, other));
}

TEST(ModelQueues, AClientsRequestsGoWithIt) {
  ModelQueues queues(10);
  const ModelIndex a = queues.add(byte_model("a", 100, 0));
  const ModelIndex b = queues.add(byte_model("b", 100, 0));
  const ModelIndex c = queues.add(byte_model("c", 100, 0));
  push(queues, a, request(1, 1));
  push_suspect(queues, a, request(2, 1));
  push(queues, b, request(3, 2));
  push(queues, b, request(4, 1));
  push(queues, c, request(5, 2));
  std::map<ModelIndex, std::size_t> gone;
  for (const auto& [model, count] : queues.remove_client(ClientId{1})) gone[model] = count;
  EXPECT_EQ(gone, (std::map<ModelIndex, std::size_t>{{a, 2}, {b, 1}}));
  EXPECT_TRUE(queues.remove_client(ClientId{1}).empty());
  EXPECT_EQ(queues.unlist(any).size(), 2U) << "nothing waits for a";
}

TEST(ModelQueues, ARequestIsRemovedByClientAndTag) {
  ModelQueues queues(10);
  const ModelIndex model = queues.add(byte_model("a", 100, 0));
  push(queues, model, request(1, 1));
  push_suspect(queues, model, request(2, 1));
  EXPECT_FALSE(queues.remove(model, ClientId{2}, 1));
  EXPECT_FALSE(queues.remove(model, ClientId{1}, 3));
  EXPECT_TRUE(queues.remove(model, ClientId{1}, 1));
  EXPECT_TRUE(queues.remove(model, ClientId{1}, 2));
  EXPECT_FALSE(queues.remove(model, ClientId{1}, 2));
  EXPECT_TRUE(queues.empty());
}

TEST(ModelQueues, UnlistTakesOnlyTheModelsOfInterest) {
  ModelQueues queues(10);
  const ModelIndex a = queues.add(byte_model("a", 100, 0));
  const ModelIndex b = queues.add(byte_model("b", 100, 0));
  push(queues, a, request(1));
  push(queues, b, request(2));
  push(queues, b, request(3));
  const auto is_b = [b](ModelIndex model) { return model == b; };
  EXPECT_EQ(queues.unlist(is_b), std::vector{b});
  EXPECT_TRUE(queues.unlist(is_b).empty());
  queues.list(b);
  EXPECT_EQ(queues.unlist(any), (std::vector{a, b}));
}

// Each request leaves the queues once: taken, with its client, or by its tag.
RC_GTEST_PROP(ModelQueuesProperty, EachRequestLeavesOnce, ()) {
  constexpr ModelIndex kModels = 3;
  struct Waiting {
    ModelIndex model;
    std::uint64_t client;
  };
  ModelQueues queues(1000);
  for (ModelIndex model = 0; model < kModels; ++model) {
    ServedModel made = byte_model(std::string(1, static_cast<char>('a' + model)), 100, 0);
    if (model == 0) made.queue.emplace();
    RC_ASSERT(queues.add(made) == model);
  }
  std::map<std::uint64_t, Waiting> waiting;  // by tag
  std::uint64_t next_tag = 1;
  const auto leave = [&](ModelIndex model, const std::vector<Request>& taken) {
    for (const Request& one : taken) {
      const auto found = waiting.find(one.tag);
      RC_ASSERT(found != waiting.end());
      RC_ASSERT(found->second.model == model);
      waiting.erase(found);
    }
  };
  const int steps = *rc::gen::inRange(1, 80);
  for (int step = 0; step < steps; ++step) {
    const auto model = *rc::gen::inRange<ModelIndex>(0, kModels);
    const auto client = *rc::gen::inRange<std::uint64_t>(1, 4);
    switch (*rc::gen::inRange(0, 8)) {
      case 0:
        leave(model, queues.take_all(model));
        RC_ASSERT(queues.queued(model) == 0U);
        break;
      case 1:
        leave(model, queues.of(model).requests.take_due_from(at(0), 2));
        break;
      case 2: {
        std::size_t removed = 0;
        for (const auto& [index, count] : queues.remove_client(ClientId{client})) removed += count;
        RC_ASSERT(removed == std::erase_if(waiting, [client](const auto& entry) {
                    return entry.second.client == client;
                  }));
        break;
      }
      case 3: {
        const auto tag = *rc::gen::inRange<std::uint64_t>(0, next_tag);
        const auto found = waiting.find(tag);
        const bool waits = found != waiting.end() && found->second.model == model &&
                           found->second.client == client;
        RC_ASSERT(queues.remove(model, ClientId{client}, tag) == waits);
        if (waits) waiting.erase(found);
        break;
      }
      case 4: {
        std::set<ModelIndex> listed;
        for (const ModelIndex one : queues.unlist(any)) RC_ASSERT(listed.insert(one).second);
        for (const auto& [tag, one] : waiting) RC_ASSERT(listed.contains(one.model));
        for (const ModelIndex one : listed) queues.list(one);
        break;
      }
      case 5:
        waiting.emplace(next_tag, Waiting{model, client});
        push_suspect(queues, model, request(next_tag++, client));
        break;
      default:
        waiting.emplace(next_tag, Waiting{model, client});
        push(queues, model, request(next_tag++, client));
        break;
    }
    std::size_t queued = 0;
    for (ModelIndex one = 0; one < kModels; ++one) queued += queues.queued(one);
    RC_ASSERT(queued == waiting.size());
    RC_ASSERT(queues.empty() == waiting.empty());
  }
  for (ModelIndex model = 0; model < kModels; ++model) leave(model, queues.take_all(model));
  RC_ASSERT(waiting.empty());
}

}  // namespace
}  // namespace gpulet::serve::model_queues_test
