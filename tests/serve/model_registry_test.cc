#include "serve/models/model_registry.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/serve/dispatched.h"
#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::model_registry_test {
namespace {

using std::chrono::seconds;
using testing::at_ms;
using testing::byte_model;
using testing::FrontendParts;
using testing::only;

ServedModel version_2(const std::string& name) {
  ServedModel model = byte_model(name, 1000, 10);
  model.sha256 = "second-hash-of-" + name;
  return model;
}

// Gives the model a ready gpulet with its wanted version.
void serve(FrontendParts& parts, const std::string& name, GpuletId id) {
  const ModelVersion& version = parts.models.find(name)->wanted();
  CreateGpulet create;
  create.id = id;
  create.size = Share{50};
  parts.backends.add_gpulet(create, {"n0", 0}, {{name, 4, version.id}}, at_ms(0));
  GpuletReport report;
  report.id = id;
  report.state = GpuletState::ready;
  parts.backends.report_gpulet(BackendId{1}, report);
  const GpuletRoute route{
      id, BackendId{1}, std::chrono::milliseconds(10), {{version.index, {seconds(1)}}}};
  DispatchOutput output;
  parts.models.successions().begin({route}, at_ms(0), output);
  parts.dispatcher.set_routes({route}, at_ms(0));
}

TEST(ModelRegistry, StatesOfAModel) {
  struct Case {
    const char* what;
    std::function<void(FrontendParts&)> arrange;
    ModelState state;
    bool withheld;
    bool has_reason;  // for clients
  };
  const auto refuse = [](FrontendParts& parts, Time until) {
    FrontendEffects effects;
    parts.models.setbacks().refuse_version(
        *parts.models.find("a"), {StatusCode::invalid, "no model"}, until, at_ms(0), effects);
  };
  const std::vector<Case> cases = {
      {"no backend", [](FrontendParts& parts) { parts.backends.remove(BackendId{1}); },
       ModelState::unavailable, false, false},
      {"not planned yet", [](FrontendParts&) {}, ModelState::loading, false, false},
      {"a plan is requested", [](FrontendParts& parts) { parts.plan_requests.add("why"); },
       ModelState::loading, false, false},
      {"the plan leaves it unserved",
       [](FrontendParts& parts) {
         schedule::Plan plan;
         plan.unserved.push_back({"a", 10, "too slow"});
         parts.deployment.in_force().set_plan(plan);
       },
       ModelState::unavailable, false, true},
      {"no place, but another plan is being made",
       [](FrontendParts& parts) {
         schedule::Plan plan;
         plan.unserved.push_back({"a", 10, "too slow"});
         parts.deployment.in_force().set_plan(plan);
         parts.plan_requests.begin();
       },
       ModelState::loading, false, false},
      {"its file is refused", [&](FrontendParts& parts) { refuse(parts, kNever); },
       ModelState::unavailable, true, true},
      {"in backoff",
       [](FrontendParts& parts) { parts.models.setbacks().back_off("a", at_ms(1000)); },
       ModelState::unavailable, true, true},
      {"in quarantine",
       [](FrontendParts& parts) {
         for (int i = 0; i < 4; ++i)
           parts.models.setbacks().quarantine().crashed("a", "ended by signal 11", at_ms(0));
       },
       ModelState::unavailable, true, true},
      {"stuck", [](FrontendParts& parts) { parts.models.find("a")->stuck = true; },
       ModelState::unavailable, true, true},
      {"ready", [](FrontendParts& parts) { serve(parts, "a", GpuletId{7}); }, ModelState::ready,
       false, false},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    FrontendParts parts;
    parts.models.add(byte_model("a", 1000, 10), at_ms(0));
    parts.backends.join(BackendId{1}, {"n0", {FrontendParts::device("n0", 0)}, {}}, at_ms(0));
    parts.models.states().set_settled(at_ms(0));
    one.arrange(parts);
    const NamedModel& known = *parts.models.find("a");
    EXPECT_EQ(parts.models.states().state_of("a", known), one.state);
    EXPECT_EQ(parts.models.setbacks().withheld("a"), one.withheld);
    EXPECT_EQ(!parts.models.states().why_unserved("a", known).empty(), one.has_reason);
  }
}

TEST(ModelRegistry, AModelWithoutARateIsIdle) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 0), at_ms(0));
  parts.backends.join(BackendId{1}, {"n0", {FrontendParts::device("n0", 0)}, {}}, at_ms(0));
  EXPECT_EQ(parts.models.states().state_of("a", *parts.models.find("a")), ModelState::idle);
}

TEST(ModelRegistry, ANewVersionTakesOverWhenItHasRoutes) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  parts.backends.join(BackendId{1}, {"n0", {FrontendParts::device("n0", 0)}, {}}, at_ms(0));
  serve(parts, "a", GpuletId{7});
  NamedModel& known = *parts.models.find("a");
  const std::string first = known.current.id;
  FrontendEffects effects;
  parts.models.successions().stage(known, version_2("a"), version_of(version_2("a")), at_ms(1),
                                   effects);
  ASSERT_TRUE(known.next);
  EXPECT_EQ(known.wanted().id, version_of(version_2("a")));
  EXPECT_EQ(known.current.id, first);
  EXPECT_TRUE(parts.models.table().known_files().contains("second-hash-of-a"));
  EXPECT_TRUE(parts.models.table().knows_file("second-hash-of-a"));

  serve(parts, "a", GpuletId{8});
  EXPECT_TRUE(parts.models.successions().reorganising());
  parts.models.successions().go_on(at_ms(2), effects);
  EXPECT_EQ(known.current.id, version_of(version_2("a")));
  EXPECT_EQ(known.number, 2U);
  EXPECT_FALSE(known.next);
  EXPECT_FALSE(parts.models.successions().reorganising());
  EXPECT_TRUE(parts.models.table().draining().empty()) << "nothing used the old version";
}

TEST(ModelRegistry, AnUnusedSleepingVersionIsReplacedAtOnce) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 0), at_ms(0));
  NamedModel& known = *parts.models.find("a");
  FrontendEffects effects;
  parts.models.successions().stage(known, version_2("a"), version_of(version_2("a")), at_ms(1),
                                   effects);
  EXPECT_FALSE(known.next);
  EXPECT_EQ(known.current.id, version_of(version_2("a")));
}

TEST(ModelRegistry, ARefusedNextVersionLeavesTheCurrentOneServing) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  parts.backends.join(BackendId{1}, {"n0", {FrontendParts::device("n0", 0)}, {}}, at_ms(0));
  serve(parts, "a", GpuletId{7});
  NamedModel& known = *parts.models.find("a");
  FrontendEffects effects;
  parts.models.successions().stage(known, version_2("a"), version_of(version_2("a")), at_ms(1),
                                   effects);
  parts.models.setbacks().refuse_version(known, {StatusCode::invalid, "no model"}, at_ms(5000),
                                         at_ms(2), effects);
  EXPECT_FALSE(known.next);
  EXPECT_FALSE(known.current_refused());
  EXPECT_EQ(parts.models.states().state_of("a", known), ModelState::ready);
  EXPECT_TRUE(parts.plan_requests.any());

  parts.models.setbacks().retry_refused(at_ms(4999), effects);
  EXPECT_FALSE(known.next);
  parts.models.setbacks().retry_refused(at_ms(5000), effects);
  ASSERT_TRUE(known.next);
  EXPECT_EQ(known.next->id, version_of(version_2("a")));
  EXPECT_FALSE(known.refused);
}

TEST(ModelRegistry, ARemovedModelIsForgottenWhenNothingUsesIt) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  parts.backends.join(BackendId{1}, {"n0", {FrontendParts::device("n0", 0)}, {}}, at_ms(0));
  serve(parts, "a", GpuletId{7});
  FrontendEffects effects;
  parts.models.remove("a", at_ms(1), effects);
  EXPECT_EQ(parts.models.find("a"), nullptr);
  ASSERT_EQ(parts.models.table().draining().size(), 1U) << "a gpulet has a slot for it";
  DispatchOutput output;
  parts.models.successions().begin({}, at_ms(2), output);
  parts.dispatcher.set_routes({}, at_ms(2));
  EXPECT_TRUE(parts.models.successions().has_more_to_do());
  parts.models.successions().go_on(at_ms(3), effects);
  EXPECT_TRUE(parts.models.table().draining().empty());
  EXPECT_FALSE(parts.models.successions().has_more_to_do());
}

TEST(ModelRegistry, AModelThatReturnsBeforeItIsForgottenKeepsItsPlace) {
  FrontendParts parts;
  parts.models.add(byte_model("b", 1000, 10), at_ms(0));
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  parts.backends.join(BackendId{1}, {"n0", {FrontendParts::device("n0", 0)}, {}}, at_ms(0));
  serve(parts, "a", GpuletId{7});
  const ModelIndex before = parts.models.find("a")->current.index;
  FrontendEffects effects;
  parts.models.remove("a", at_ms(1), effects);
  EXPECT_EQ(parts.log.events().size(), 1U);
  ASSERT_EQ(parts.models.table().draining().size(), 1U);
  parts.models.add(byte_model("a", 1000, 10), at_ms(2));
  EXPECT_TRUE(parts.models.table().draining().empty());
  EXPECT_EQ(parts.models.find("a")->current.index, before);
}

TEST(ModelRegistry, RequestsOfARemovedModelAreSentBeforeItsLastRouteGoes) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  parts.backends.join(BackendId{1}, {"n0", {FrontendParts::device("n0", 0)}, {}}, at_ms(0));
  serve(parts, "a", GpuletId{7});
  const ModelIndex index = parts.models.find("a")->current.index;
  DispatchOutput output;
  parts.dispatcher.enqueue(index, testing::byte_request(1, at_ms(0), at_ms(9000)), at_ms(0),
                           output);
  FrontendEffects effects;
  parts.models.remove("a", at_ms(1), effects);
  const GpuletRoute route{
      GpuletId{7}, BackendId{1}, std::chrono::milliseconds(10), {{index, {seconds(1)}}}};
  parts.models.successions().begin({route}, at_ms(2), output);
  EXPECT_TRUE(output.batches.empty());
  parts.models.successions().begin({}, at_ms(3), output);
  EXPECT_EQ(output.batches.size(), 1U);
}

TEST(ModelRegistry, AVersionThatRunsIsProven) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  parts.backends.join(BackendId{1}, {"n0", {FrontendParts::device("n0", 0)}, {}}, at_ms(0));
  serve(parts, "a", GpuletId{7});
  NamedModel& known = *parts.models.find("a");
  FrontendEffects effects;
  parts.models.successions().stage(known, version_2("a"), version_of(version_2("a")), at_ms(1),
                                   effects);
  ASSERT_TRUE(known.next);
  parts.models.setbacks().prove({{"a", 4, known.current.id}});
  EXPECT_TRUE(known.current.proven);
  EXPECT_FALSE(known.next->proven);
  parts.models.setbacks().prove({{"a", 4, known.next->id}});
  EXPECT_TRUE(known.next->proven);
}

TEST(ModelRegistry, BackoffsEndByThemselvesAndRequestAPlan) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  parts.models.setbacks().back_off("a", at_ms(1000));
  parts.models.setbacks().expire_backoffs(at_ms(999));
  EXPECT_FALSE(parts.plan_requests.any());
  parts.models.setbacks().expire_backoffs(at_ms(1000));
  EXPECT_TRUE(parts.plan_requests.any());
  EXPECT_FALSE(parts.models.setbacks().withheld("a"));
}

TEST(ModelRegistry, RequestsThatWaitForASleepingModelAreRefusedIfItCannotBeServed) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 0), at_ms(0));
  parts.backends.join(BackendId{1}, {"n0", {FrontendParts::device("n0", 0)}, {}}, at_ms(0));
  NamedModel& known = *parts.models.find("a");
  Request request;
  request.client = ClientId{1};
  request.deadline = at_ms(10000);
  DispatchOutput output;
  parts.dispatcher.enqueue(known.current.index, std::move(request), at_ms(0), output);
  known.waking = true;
  FrontendEffects effects;
  parts.plan_requests.begin();
  parts.models.refuse_wakers(at_ms(1), effects);
  EXPECT_TRUE(effects.empty()) << "a plan is being made";
  parts.plan_requests.discard();
  schedule::Plan plan;
  plan.unserved.push_back({"a", 10, "too slow"});
  parts.deployment.in_force().set_plan(plan);
  parts.models.refuse_wakers(at_ms(2), effects);
  ASSERT_EQ(only<ReplyToClient>(effects).size(), 1U);
  EXPECT_EQ(only<ReplyToClient>(effects)[0].reply.status.code(), StatusCode::unavailable);
  EXPECT_FALSE(known.waking);
}

}  // namespace
}  // namespace gpulet::serve::model_registry_test
