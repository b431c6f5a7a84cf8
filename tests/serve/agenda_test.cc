#include "serve/dispatch/agenda.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/serve/dispatched.h"

namespace gpulet::serve::agenda_test {
namespace {

using testing::at;
using Marks = std::map<GpuletId, Agenda::GpuletMark>;

void advance(Agenda& agenda, Marks& marks, Time now) {
  agenda.advance(now, [&marks](GpuletId id) {
    const auto found = marks.find(id);
    return found == marks.end() ? nullptr : &found->second;
  });
}

Agenda with_models(std::size_t count) {
  Agenda agenda;
  for (ModelIndex model = 0; model < count; ++model) agenda.add(model);
  return agenda;
}

TEST(Agenda, AModelIsListedOnceHoweverOftenItIsTouched) {
  Agenda agenda = with_models(2);
  agenda.touch(1);
  agenda.touch(1);
  EXPECT_EQ(agenda.take_model(), ModelIndex{1});
  EXPECT_FALSE(agenda.take_model());
  agenda.touch(1);
  EXPECT_EQ(agenda.take_model(), ModelIndex{1}) << "it was taken before";
}

TEST(Agenda, AGpuletIsListedOnceUntilItsMarkIsCleared) {
  Agenda agenda;
  Agenda::GpuletMark mark;
  agenda.list_due(GpuletId{3}, mark);
  agenda.list_due(GpuletId{3}, mark);
  EXPECT_EQ(agenda.take_gpulet(), GpuletId{3});
  EXPECT_FALSE(agenda.take_gpulet());
  mark.due = false;
  agenda.list_due(GpuletId{3}, mark);
  EXPECT_EQ(agenda.take_gpulet(), GpuletId{3});
}

TEST(Agenda, InstancesAreDueAfterAnyTouchAndOnce) {
  Agenda agenda = with_models(1);
  EXPECT_FALSE(agenda.take_instances());
  agenda.touch(0);
  EXPECT_TRUE(agenda.take_instances());
  EXPECT_FALSE(agenda.take_instances());
  agenda.touch_instances();
  EXPECT_TRUE(agenda.take_instances());
}

TEST(Agenda, OnlyTheEarliestWakeOfAModelCounts) {
  Agenda agenda = with_models(1);
  Marks marks;
  agenda.wake(0, at(30));
  agenda.wake(0, at(10));
  agenda.wake(0, at(20));
  EXPECT_EQ(agenda.next_wake(), at(10));
  advance(agenda, marks, at(9));
  EXPECT_FALSE(agenda.take_model());
  advance(agenda, marks, at(10));
  EXPECT_EQ(agenda.take_model(), ModelIndex{0});
  advance(agenda, marks, at(100));
  EXPECT_FALSE(agenda.take_model()) << "a later wake has to be asked for again";
  EXPECT_EQ(agenda.next_wake(), kNever);
}

TEST(Agenda, AForgottenModelIsNeitherListedNorWoken) {
  Agenda agenda = with_models(2);
  Marks marks;
  agenda.touch(0);
  agenda.wake(0, at(10));
  agenda.forget(0);
  EXPECT_FALSE(agenda.take_model());
  advance(agenda, marks, at(10));
  EXPECT_FALSE(agenda.take_model());
  agenda.add(0);  // another model has the index now
  agenda.wake(0, at(20));
  advance(agenda, marks, at(20));
  EXPECT_EQ(agenda.take_model(), ModelIndex{0});
}

TEST(Agenda, AGpuletThatIsGoneIsNotWoken) {
  Agenda agenda;
  Marks marks;
  agenda.wake(GpuletId{1}, marks[GpuletId{1}], at(10));
  agenda.wake(GpuletId{2}, marks[GpuletId{2}], at(10));
  marks.erase(GpuletId{1});
  EXPECT_EQ(agenda.next_wake(), at(10));
  advance(agenda, marks, at(10));
  EXPECT_EQ(agenda.take_gpulet(), GpuletId{2});
  EXPECT_FALSE(agenda.take_gpulet());
  EXPECT_EQ(agenda.next_wake(), kNever);
}

// Each model and gpulet comes due at the earliest time that was asked for since it last did.
RC_GTEST_PROP(AgendaProperty, EachComesDueAtItsEarliestWake, ()) {
  constexpr std::size_t kEach = 3;
  Agenda agenda = with_models(kEach);
  Marks marks;
  for (std::uint64_t id = 0; id < kEach; ++id) marks[GpuletId{id}];
  std::map<ModelIndex, Time> models;
  std::map<GpuletId, Time> gpulets;
  const auto lower = [](auto& wakes, auto key, Time time) {
    const auto [found, is_new] = wakes.emplace(key, time);
    if (!is_new) found->second = std::min(found->second, time);
  };
  const auto take_passed = [](auto& wakes, Time now) {
    std::set<typename std::remove_reference_t<decltype(wakes)>::key_type> passed;
    std::erase_if(wakes, [&](const auto& entry) {
      if (entry.second <= now) passed.insert(entry.first);
      return entry.second <= now;
    });
    return passed;
  };
  int now = 0;
  const int steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < steps; ++step) {
    const auto which = *rc::gen::inRange<std::size_t>(0, kEach);
    const Time wake = at(now + *rc::gen::inRange(1, 20));
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        agenda.wake(which, wake);
        lower(models, which, wake);
        break;
      case 1:
        agenda.wake(GpuletId{which}, marks.at(GpuletId{which}), wake);
        lower(gpulets, GpuletId{which}, wake);
        break;
      case 2:
        agenda.forget(which);
        models.erase(which);
        break;
      default: {
        now += *rc::gen::inRange(0, 15);
        advance(agenda, marks, at(now));
        std::set<ModelIndex> due_models;
        while (const auto model = agenda.take_model()) RC_ASSERT(due_models.insert(*model).second);
        RC_ASSERT(due_models == take_passed(models, at(now)));
        std::set<GpuletId> due_gpulets;
        while (const auto id = agenda.take_gpulet()) {
          RC_ASSERT(due_gpulets.insert(*id).second);
          marks.at(*id).due = false;
        }
        RC_ASSERT(due_gpulets == take_passed(gpulets, at(now)));
        break;
      }
    }
    for (const auto& [model, time] : models) RC_ASSERT(agenda.next_wake() <= time);
    for (const auto& [id, time] : gpulets) RC_ASSERT(agenda.next_wake() <= time);
  }
}

}  // namespace
}  // namespace gpulet::serve::agenda_test
