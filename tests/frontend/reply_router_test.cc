#include "frontend/frames/reply_router.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <map>
#include <set>
#include <vector>

namespace gpulet::frontend::reply_router_test {
namespace {

// Counts what it gets.
class Sink final : public ReplySink {
 public:
  void reply(InferReply /*reply*/) override { ++replies; }

  int replies = 0;
};

TEST(ReplyRouter, FindsTheSinkOfAClientUntilItIsGone) {
  ReplyRouter router;
  Sink sink;
  const ClientId client = router.new_client();
  EXPECT_EQ(router.find(client), nullptr);
  router.add(client, sink);
  ASSERT_EQ(router.find(client), &sink);
  router.find(client)->reply({});
  EXPECT_EQ(sink.replies, 1);
  router.remove(client);
  EXPECT_EQ(router.find(client), nullptr);
  router.remove(client);
}

TEST(ReplyRouter, ASinkMayIgnoreWhatIsNoInference) {
  Sink sink;
  sink.reply_elsewhere(1);
  sink.send({});
  EXPECT_EQ(sink.replies, 0);
}

TEST(ReplyRouter, OneSinkMayHaveSeveralClients) {
  ReplyRouter router;
  Sink sink;
  const ClientId one = router.new_client();
  const ClientId other = router.new_client();
  router.add(one, sink);
  router.add(other, sink);
  router.remove(one);
  EXPECT_EQ(router.find(one), nullptr);
  EXPECT_EQ(router.find(other), &sink);
}

TEST(ReplyRouter, DeliversToSinksOfItsOwnThread) {
  ReplyRouter router;
  Sink sink;
  const ClientId client = router.new_client();
  router.add(client, sink);
  router.reply(client, {});
  router.send(client, {});
  router.reply(router.new_client(), {});
  EXPECT_EQ(sink.replies, 1);
}

RC_GTEST_PROP(ReplyRouterProperty, RoutersOfSeveralThreadsGiveDifferentNumbers, ()) {
  const auto threads = *rc::gen::inRange<std::size_t>(1, 18);
  std::vector<ReplyRouter> routers;
  for (std::size_t i = 0; i < threads; ++i) routers.emplace_back(ThreadOfConnections{i, threads});
  std::set<std::uint64_t> given{0};
  for (int step = 0; step < 100; ++step) {
    ReplyRouter& router = routers[*rc::gen::inRange<std::size_t>(0, threads)];
    RC_ASSERT(given.insert(router.new_connection()).second);
  }
}

RC_GTEST_PROP(ReplyRouterProperty, NoReplyReachesAnotherClient, ()) {
  ReplyRouter router;
  std::array<Sink, 4> sinks;
  std::map<std::uint64_t, ReplySink*> expected;
  std::set<std::uint64_t> given{0};
  for (int step = *rc::gen::inRange(0, 100); step > 0; --step) {
    const bool is_backend = *rc::gen::arbitrary<bool>();
    const std::uint64_t id = is_backend ? router.new_connection() : router.new_client().value;
    RC_ASSERT(given.insert(id).second);  // clients and backends share the numbers
    if (is_backend) continue;
    Sink& sink = *(sinks.begin() + *rc::gen::inRange(0, 4));
    router.add({id}, sink);
    expected[id] = &sink;
    if (*rc::gen::inRange(0, 3) > 0) continue;
    const std::uint64_t leaves = *rc::gen::elementOf(given);
    router.remove({leaves});
    expected.erase(leaves);
  }
  for (const std::uint64_t id : given) {
    const auto found = expected.find(id);
    RC_ASSERT(router.find({id}) == (found == expected.end() ? nullptr : found->second));
  }
}

}  // namespace
}  // namespace gpulet::frontend::reply_router_test
