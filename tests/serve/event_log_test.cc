#include "serve/values/event_log.h"

#include <gtest/gtest.h>

#include "serve/deploy/deployment.h"
#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::event_log_test {
namespace {

using testing::at_ms;
using Kind = StatusEvent::Kind;

TEST(EventLog, RepeatedEventsAreCountedOnce) {
  struct Case {
    const char* what;
    int seconds;  // between the two events
    const char* second;
    bool warning;
    Kind kind;
    std::size_t events;
    std::uint64_t count;
  };
  const Case cases[] = {
      {"the same event", 30, "x", false, Kind::note, 1, 2},
      {"after more than a minute", 61, "x", false, Kind::note, 2, 1},
      {"another text", 30, "y", false, Kind::note, 2, 1},
      {"now a warning", 30, "x", true, Kind::note, 2, 1},
      {"another kind", 30, "x", false, Kind::shortage, 2, 1},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    EventLog log;
    FrontendEffects effects;
    log.note(false, "x", at_ms(0), effects);
    log.note(one.warning, one.second, at_ms(1000 * one.seconds), effects, one.kind);
    EXPECT_EQ(effects.size(), 2U) << "each event is logged";
    ASSERT_EQ(log.events().size(), one.events);
    EXPECT_EQ(log.events().back().count, one.count);
    EXPECT_EQ(log.events().back().time, at_ms(1000 * one.seconds));
  }
}

TEST(EventLog, AShortageReplacesThePreviousOneWhateverItsText) {
  EventLog log;
  FrontendEffects effects;
  log.note(true, "cannot place a", at_ms(0), effects, Kind::shortage);
  log.note(true, "cannot place b", at_ms(1), effects, Kind::shortage);
  ASSERT_EQ(log.events().size(), 1U);
  EXPECT_EQ(log.events()[0].text, "cannot place b");
  EXPECT_EQ(log.events()[0].count, 2U);
}

TEST(EventLog, TheOldestEventsAreForgotten) {
  EventLog log;
  FrontendEffects effects;
  for (int i = 0; i < 60; ++i) log.note(false, std::to_string(i), at_ms(i), effects);
  ASSERT_EQ(log.events().size(), 50U);
  EXPECT_EQ(log.events().front().text, "10");
}

TEST(PlanHistory, CountsDevicesAndReplacesStagesOfOneDecision) {
  const auto decision = [](std::uint64_t number, const std::vector<std::string>& nodes) {
    PlanDecision made;
    made.number = number;
    made.decided = at_ms(0);
    for (const std::string& node : nodes)
      made.plan.gpulets.push_back(testing::FrontendParts::plan_for(node, {"a"}).gpulets[0]);
    return made;
  };
  PlanHistory history;
  history.decide(decision(1, {"n0", "n1"}), 0);
  history.in_force(Epoch{1}, std::chrono::milliseconds(5), at_ms(10));
  history.in_force(Epoch{2}, std::chrono::milliseconds(3), at_ms(20));
  ASSERT_EQ(history.plans().size(), 1U) << "stages of one decision";
  EXPECT_EQ(history.plans()[0].epoch, Epoch{2});
  EXPECT_EQ(history.plans()[0].took, std::chrono::milliseconds(20)) << "from the decision";
  history.decide(decision(2, {"n0"}), 2);
  history.in_force(Epoch{3}, std::chrono::milliseconds(4), at_ms(30));
  EXPECT_EQ(history.plans().size(), 2U);
  EXPECT_EQ(history.counters().plans, 3U);
  EXPECT_EQ(history.counters().devices_taken, 2U);
  EXPECT_EQ(history.counters().devices_given_back, 1U);
  EXPECT_EQ(history.counters().last_took, std::chrono::milliseconds(4));
  EXPECT_EQ(history.counters().longest_took, std::chrono::milliseconds(5));
}

TEST(PlanRequests, KeepFourReasonsAndTheLatestOfEachSubject) {
  PlanRequests requests;
  requests.add("a gets 10/s", "a");
  requests.add("a gets 20/s", "a");
  requests.add("a node joined");
  requests.add("a node joined");
  for (const char* const more : {"third", "fourth", "fifth"}) requests.add(more);
  EXPECT_EQ(requests.begin(), 1U);
  EXPECT_EQ(requests.reasons_of_last(), "a gets 20/s; a node joined; third; fourth");
}

TEST(PlanRequests, OnlyThePendingPlanIsAccepted) {
  PlanRequests requests;
  EXPECT_FALSE(requests.any() || requests.pending() || requests.urgent());
  requests.add_urgent("a node is lost");
  EXPECT_TRUE(requests.any() && requests.urgent());
  const std::uint64_t first = requests.begin();
  EXPECT_TRUE(requests.pending());
  EXPECT_FALSE(requests.any() || requests.urgent());
  EXPECT_FALSE(requests.finish(first + 1));
  requests.discard();
  EXPECT_FALSE(requests.pending());
  EXPECT_FALSE(requests.finish(first)) << "it was discarded";
  requests.add("again");
  const std::uint64_t second = requests.begin();
  EXPECT_GT(second, first);
  EXPECT_TRUE(requests.finish(second));
  EXPECT_FALSE(requests.finish(second)) << "it was accepted before";
}

}  // namespace
}  // namespace gpulet::serve::event_log_test
