#include "simulate/agenda.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <vector>

namespace gpulet::simulate::agenda_test {
namespace {

using namespace std::chrono_literals;

// Runs all that is due, calls of calls too.
void run(Agenda& agenda) {
  while (agenda.first() != nullptr) {
    const Timer timer = agenda.take_first();
    agenda.advance(timer.due.time);
    agenda.run_call(timer);
  }
}

TEST(Agenda, ItsTimeNeverGoesBack) {
  Agenda agenda;
  const Time start = agenda.now();
  agenda.advance(start + 5s);
  agenda.advance(start + 3s);
  EXPECT_EQ(agenda.now(), start + 5s);
}

TEST(Agenda, ATimerKeepsWhatItIsFor) {
  Agenda agenda;
  EXPECT_EQ(agenda.first(), nullptr);
  const auto order = agenda.add(agenda.now() + 1s, Timer::Kind::batch_done, 3, {7});
  const Timer timer = agenda.take_first();
  EXPECT_EQ(timer.due, (Due{agenda.now() + 1s, order}));
  EXPECT_EQ(timer.kind, Timer::Kind::batch_done);
  EXPECT_EQ(timer.node, 3U);
  EXPECT_EQ(timer.gpulet, GpuletId{7});
  EXPECT_EQ(agenda.first(), nullptr);
}

TEST(Agenda, ACallOfThePastIsDueNow) {
  Agenda agenda;
  Time called{};
  agenda.call_at(agenda.now() - 1h, [&] { called = agenda.now(); });
  EXPECT_EQ(agenda.first()->due.time, agenda.now());
  run(agenda);
  EXPECT_EQ(called, agenda.now());
}

TEST(Agenda, ACallMayMakeCalls) {
  Agenda agenda;
  int calls = 0;
  agenda.call_at(agenda.now() + 1s, [&] {
    ++calls;
    agenda.call_at(agenda.now(), [&] { ++calls; });
  });
  run(agenda);
  EXPECT_EQ(calls, 2);
}

RC_GTEST_PROP(AgendaProperty, RunsCallsByTimeThenInTheOrderInWhichTheyWereMade, ()) {
  Agenda agenda;
  const Time start = agenda.now();
  std::vector<Due> ran;
  const int calls = *rc::gen::inRange(0, 50);
  for (int call = 0; call < calls; ++call) {
    const Time at = start + std::chrono::seconds(*rc::gen::inRange(0, 10));
    agenda.call_at(at, [&ran, at, call] { ran.push_back({at, static_cast<std::uint64_t>(call)}); });
  }
  run(agenda);
  RC_ASSERT(ran.size() == static_cast<std::size_t>(calls));
  for (std::size_t i = 1; i < ran.size(); ++i) RC_ASSERT(ran[i - 1] < ran[i]);
}

}  // namespace
}  // namespace gpulet::simulate::agenda_test
