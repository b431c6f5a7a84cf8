#include "serve/models/setbacks.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <string>

#include "tests/support/serve/ready_gpulet.h"

namespace gpulet::serve::setbacks_test {
namespace {

using testing::at_ms;
using testing::byte_model;
using testing::byte_request;
using testing::FrontendParts;
using testing::new_version;
using testing::only;

// Models "a" and "b", and a backend.
struct Models {
  Models() {
    for (const char* const name : {"a", "b"})
      parts.models.add(byte_model(name, 1000, 10), at_ms(0));
    parts.join(1, "n0", at_ms(0));
    parts.plan_requests.begin();
    parts.plan_requests.discard();
  }
  [[nodiscard]] Setbacks& setbacks() { return parts.models.setbacks(); }
  [[nodiscard]] NamedModel& a() { return *parts.models.find("a"); }
  void stage(int number) {
    parts.models.successions().stage(a(), new_version("a", number),
                                     version_of(new_version("a", number)), at_ms(1), effects);
  }
  void refuse(Time until) {
    setbacks().refuse_version(a(), {StatusCode::invalid, "why"}, until, at_ms(2), effects);
  }
  void wait_for_a(std::uint64_t tag) {
    DispatchOutput output;
    parts.dispatcher.enqueue(a().current.index, byte_request(tag, at_ms(0), at_ms(9000)), at_ms(0),
                             output);
  }

  FrontendParts parts;
  FrontendEffects effects;
};

TEST(Setbacks, ARefusedCurrentVersionIsWithheldAndItsRequestsAnswered) {
  Models models;
  models.wait_for_a(1);
  models.a().waking = true;
  models.refuse(at_ms(5000));
  EXPECT_TRUE(models.a().current_refused());
  EXPECT_EQ(models.a().refused->until, at_ms(5000));
  EXPECT_FALSE(models.a().waking);
  EXPECT_TRUE(models.setbacks().withheld("a"));
  EXPECT_FALSE(models.setbacks().withheld("b"));
  const auto replies = only<ReplyToClient>(models.effects);
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].reply.status.code(), StatusCode::unavailable);
  EXPECT_TRUE(models.parts.plan_requests.any());
  models.setbacks().retry_refused(at_ms(5000), models.effects);
  EXPECT_FALSE(models.setbacks().withheld("a"));
}

TEST(Setbacks, ARefusedNextVersionIsDroppedAndTheCurrentOneStays) {
  Models models;
  models.stage(2);
  models.wait_for_a(1);
  models.refuse(kNever);
  EXPECT_FALSE(models.a().next);
  EXPECT_FALSE(models.a().current_refused());
  EXPECT_FALSE(models.setbacks().withheld("a"));
  EXPECT_TRUE(only<ReplyToClient>(models.effects).empty());
  EXPECT_EQ(models.parts.models.table().draining().size(), 1U);
}

// Its gpulet fails while the next version waits for its turn.
TEST(Setbacks, ANextVersionThatWaitsOutlivesTheRefusalOfTheCurrentOne) {
  Models models;
  models.stage(2);
  models.a().trial_wait = TrialWait::turn;
  models.wait_for_a(1);
  models.refuse(kNever);
  EXPECT_TRUE(models.a().current_refused());
  ASSERT_TRUE(models.a().next);
  EXPECT_EQ(models.a().next->id, version_of(new_version("a", 2)));
  EXPECT_EQ(only<ReplyToClient>(models.effects).size(), 1U) << "nothing serves the current one";
  EXPECT_FALSE(models.setbacks().withheld("a")) << "plans may try the next one";
  models.a().parked = true;
  EXPECT_TRUE(models.setbacks().withheld("a"));
}

TEST(Setbacks, ARefusedVersionIsStagedAgainWhenItsTimeHasCome) {
  Models models;
  models.stage(2);
  models.refuse(at_ms(5000));
  models.setbacks().retry_refused(at_ms(4999), models.effects);
  EXPECT_TRUE(models.a().refused);
  EXPECT_FALSE(models.a().next);
  models.setbacks().retry_refused(at_ms(5000), models.effects);
  EXPECT_FALSE(models.a().refused);
  ASSERT_TRUE(models.a().next);
  EXPECT_EQ(models.a().next->id, version_of(new_version("a", 2)));
}

TEST(Setbacks, ABackoffWithholdsAModelUntilItsTime) {
  Models models;
  models.setbacks().back_off("a", at_ms(1000));
  models.setbacks().back_off("b", at_ms(2000));
  EXPECT_TRUE(models.setbacks().in_backoff("a"));
  EXPECT_TRUE(models.setbacks().withheld("a"));
  models.setbacks().expire_backoffs(at_ms(999));
  EXPECT_FALSE(models.parts.plan_requests.any());
  models.setbacks().expire_backoffs(at_ms(1000));
  EXPECT_TRUE(models.parts.plan_requests.any());
  EXPECT_FALSE(models.setbacks().in_backoff("a"));
  EXPECT_TRUE(models.setbacks().in_backoff("b"));
  EXPECT_TRUE(models.setbacks().end_backoff("b"));
  EXPECT_FALSE(models.setbacks().end_backoff("b"));
}

TEST(Setbacks, AQuarantineAnswersWhatWaitsAndEndsByItself) {
  Models models;
  const QuarantineOptions& options = models.parts.options.quarantine;
  models.wait_for_a(1);
  for (std::uint32_t crash = 0; crash < options.crashes; ++crash)
    models.setbacks().quarantine().crashed("a", "ended", at_ms(0));
  ASSERT_TRUE(models.setbacks().quarantine().holds("a"));
  models.setbacks().enter_quarantine("a", at_ms(0), models.effects);
  EXPECT_TRUE(models.setbacks().withheld("a"));
  EXPECT_EQ(only<ReplyToClient>(models.effects).size(), 1U);
  EXPECT_TRUE(models.parts.plan_requests.urgent());
  models.parts.plan_requests.begin();
  models.setbacks().expire_quarantines(at_ms(0) + options.first - Duration(1), models.effects);
  EXPECT_TRUE(models.setbacks().withheld("a"));
  EXPECT_FALSE(models.parts.plan_requests.any());
  models.setbacks().expire_quarantines(at_ms(0) + options.first, models.effects);
  EXPECT_FALSE(models.setbacks().withheld("a"));
  EXPECT_TRUE(models.parts.plan_requests.any());
}

TEST(Setbacks, ARemovedModelLeavesNothingBehind) {
  Models models;
  models.setbacks().back_off("a", at_ms(1000));
  for (std::uint32_t crash = 0; crash < models.parts.options.quarantine.crashes; ++crash)
    models.setbacks().quarantine().crashed("a", "ended", at_ms(0));
  models.setbacks().forget("a");
  EXPECT_FALSE(models.setbacks().withheld("a"));
  EXPECT_EQ(models.setbacks().quarantine().crashes("a"), 0U);
}

TEST(Setbacks, AProvenVersionHasNoFailuresAnyMore) {
  Models models;
  NamedModel& a = models.a();
  a.current.failed_on = {"n0"};
  a.current.tried_since = at_ms(0);
  a.failure = {{"n0", 0}, FailureCause::unknown, {}, a.current.id};
  a.slow_version = a.current.id;
  a.slow_loads = 3;
  models.setbacks().prove({{"a", 4, "another version"}, {"nobody", 4, "v"}});
  EXPECT_FALSE(a.current.proven);
  EXPECT_TRUE(a.failure);
  models.setbacks().prove({{"a", 4, a.current.id}});
  EXPECT_TRUE(a.current.proven);
  EXPECT_TRUE(a.current.failed_on.empty());
  EXPECT_FALSE(a.current.tried_since);
  EXPECT_FALSE(a.failure);
  EXPECT_EQ(a.slow_loads, 0U);
}

TEST(Setbacks, NewsOfAProvenVersionRequestAPlanForThoseThatWait) {
  Models models;
  models.setbacks().prove({{"a", 4, models.a().current.id}});
  EXPECT_FALSE(models.parts.plan_requests.any()) << "nobody waits";
  models.parts.models.find("b")->trial_wait = TrialWait::turn;
  models.setbacks().prove({{"a", 4, models.a().current.id}});
  EXPECT_FALSE(models.parts.plan_requests.any()) << "it was proven before";
  models.stage(2);
  models.setbacks().prove({{"a", 4, models.a().next->id}});
  EXPECT_TRUE(models.parts.plan_requests.any());
}

// A model is in backoff exactly until the last time that was set, unless it ended before.
RC_GTEST_PROP(SetbacksProperty, BackoffsEndAtTheirTime, ()) {
  Models models;
  std::map<std::string, int> until;
  int now = 0;
  const int steps = *rc::gen::inRange(1, 40);
  for (int step = 0; step < steps; ++step) {
    const std::string name = *rc::gen::element<std::string>("a", "b");
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        until[name] = now + *rc::gen::inRange(1, 50);
        models.setbacks().back_off(name, at_ms(until[name]));
        break;
      case 1:
        RC_ASSERT(models.setbacks().end_backoff(name) == (until.erase(name) > 0));
        break;
      default:
        now += *rc::gen::inRange(0, 30);
        models.setbacks().expire_backoffs(at_ms(now));
        std::erase_if(until, [now](const auto& entry) { return entry.second <= now; });
        break;
    }
    for (const char* const one : {"a", "b"})
      RC_ASSERT(models.setbacks().withheld(one) == until.contains(one));
  }
}

}  // namespace
}  // namespace gpulet::serve::setbacks_test
