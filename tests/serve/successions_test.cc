#include "serve/models/successions.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string>

#include "tests/support/serve/ready_gpulet.h"

namespace gpulet::serve::successions_test {
namespace {

using testing::at_ms;
using testing::byte_model;
using testing::byte_request;
using testing::FrontendParts;
using testing::new_version;
using testing::put_in_force;
using testing::route_of;

// Model "a", which gpulet 7 serves.
struct Serving {
  explicit Serving(double rate = 10) {
    parts.models.add(byte_model("a", 1000, rate), at_ms(0));
    parts.join(1, "n0", at_ms(0));
    parts.plan_requests.begin();
    parts.plan_requests.discard();
    add_gpulet(7);
    routes = {route_of(parts, 7, {"a"})};
    put_in_force(parts, routes);
  }
  [[nodiscard]] Successions& successions() { return parts.models.successions(); }
  [[nodiscard]] NamedModel& a() { return *parts.models.find("a"); }
  void stage(const ServedModel& model) {
    successions().stage(a(), model, version_of(model), at_ms(1), effects);
  }
  void add_gpulet(std::uint64_t id) {
    testing::add_gpulet(parts, id, "n0", {"a"});
    testing::set_ready(parts, id);
  }
  void wait_for_a(std::uint64_t tag) {
    DispatchOutput output;
    parts.dispatcher.enqueue(a().current.index, byte_request(tag, at_ms(0), at_ms(9000)), at_ms(0),
                             output);
  }

  FrontendParts parts;
  FrontendEffects effects;
  std::vector<GpuletRoute> routes;
};

ServedModel wider() {
  ServedModel model = new_version("a");
  model.outputs.at(0).shape = {2};
  return with_sizes(model).value();
}

TEST(Successions, AStagedVersionWaitsForItsGpulet) {
  Serving serving;
  serving.a().stuck = true;
  serving.a().failure.emplace();
  serving.a().refused.emplace();
  serving.stage(new_version("a"));
  ASSERT_TRUE(serving.a().next);
  EXPECT_FALSE(serving.a().refused || serving.a().failure || serving.a().stuck);
  EXPECT_FALSE(serving.successions().reorganising());
  EXPECT_EQ(serving.a().number, 1U);
}

TEST(Successions, AStagedVersionReplacesTheOneThatWaited) {
  Serving serving;
  serving.stage(new_version("a", 2));
  serving.stage(new_version("a", 3));
  EXPECT_EQ(serving.a().next->id, version_of(new_version("a", 3)));
  ASSERT_EQ(serving.parts.models.table().draining().size(), 1U);
  const ModelIndex index = serving.parts.models.table().draining()[0].version.index;
  serving.stage(new_version("a", 2));
  EXPECT_EQ(serving.a().next->index, index) << "it is taken back";
}

TEST(Successions, AVersionTakesOverOnceTheOldOneHasNoReadyGpulet) {
  Serving serving;
  serving.stage(new_version("a"));
  serving.add_gpulet(8);
  std::vector<GpuletRoute> both = serving.routes;
  both.push_back(route_of(serving.parts, 8, {"a"}));
  put_in_force(serving.parts, both);
  EXPECT_FALSE(serving.successions().reorganising()) << "gpulet 7 still takes batches";
  put_in_force(serving.parts, {both[1]});
  EXPECT_TRUE(serving.successions().reorganising());
  EXPECT_TRUE(serving.successions().has_more_to_do());
  serving.successions().go_on(at_ms(2), serving.effects);
  EXPECT_EQ(serving.a().current.id, version_of(new_version("a")));
  EXPECT_EQ(serving.a().number, 2U);
  EXPECT_FALSE(serving.successions().has_more_to_do());
}

TEST(Successions, ADueVersionThatLostItsRoutesDoesNotTakeOver) {
  Serving serving;
  serving.stage(new_version("a"));
  serving.add_gpulet(8);
  put_in_force(serving.parts, {route_of(serving.parts, 8, {"a"})});
  serving.parts.dispatcher.set_routes({}, at_ms(2));
  serving.successions().go_on(at_ms(2), serving.effects);
  EXPECT_TRUE(serving.a().next);
  EXPECT_FALSE(serving.successions().reorganising());
}

TEST(Successions, RequestsThatCannotFollowAreSentBefore) {
  for (const bool can_follow : {true, false}) {
    Serving serving;
    serving.wait_for_a(1);
    serving.stage(can_follow ? new_version("a") : wider());
    serving.add_gpulet(8);
    const DispatchOutput output =
        put_in_force(serving.parts, {route_of(serving.parts, 8, {"a"})}, at_ms(2));
    EXPECT_EQ(output.batches.size(), can_follow ? 0U : 1U);
  }
}

TEST(Successions, ADroppedVersionDrainsAndTheCurrentOneStays) {
  Serving serving;
  serving.stage(new_version("a"));
  serving.a().parked = true;
  serving.a().trial_wait = TrialWait::room;
  serving.successions().drop_next(serving.a(), serving.effects);
  EXPECT_FALSE(serving.a().next);
  EXPECT_FALSE(serving.a().parked);
  EXPECT_EQ(serving.a().trial_wait, TrialWait::none);
  ASSERT_EQ(serving.parts.models.table().draining().size(), 1U);
  EXPECT_FALSE(serving.parts.models.table().draining()[0].removed);
  serving.successions().sweep(at_ms(2), serving.effects);
  EXPECT_TRUE(serving.parts.models.table().draining().empty());
}

TEST(Successions, WhereAnotherFrontendServesTheNextVersionTakesOverAtOnce) {
  Serving serving;
  serving.successions().serve_elsewhere(true);
  serving.stage(new_version("a", 2));
  EXPECT_FALSE(serving.a().next);
  EXPECT_EQ(serving.a().current.id, version_of(new_version("a", 2)));
  serving.successions().serve_elsewhere(false);
  serving.stage(new_version("a", 3));
  ASSERT_TRUE(serving.a().next);
  serving.successions().finish(at_ms(3), serving.effects);
  EXPECT_EQ(serving.a().current.id, version_of(new_version("a", 3)));
}

TEST(Successions, TheFirstFileOfAModelIsNoNewVersion) {
  FrontendParts parts;
  ServedModel without_file = byte_model("a", 1000, 10);
  without_file.sha256.clear();
  parts.models.add(without_file, at_ms(0));
  NamedModel& known = *parts.models.find("a");
  FrontendEffects effects;
  parts.models.successions().stage(known, byte_model("a", 1000, 10),
                                   version_of(byte_model("a", 1000, 10)), at_ms(1), effects);
  EXPECT_FALSE(known.next);
  EXPECT_FALSE(parts.models.table().lacks_file(known));
  EXPECT_EQ(known.number, 1U);
}

TEST(Successions, AChangeIsExpectedWhileAPlanIsWantedOrMade) {
  Serving serving;
  PlanRequests& plans = serving.parts.plan_requests;
  EXPECT_FALSE(serving.successions().change_expected());
  plans.add("why");
  EXPECT_TRUE(serving.successions().change_expected());
  plans.begin();
  EXPECT_TRUE(serving.successions().change_expected());
  EXPECT_FALSE(serving.successions().reorganising());
  plans.discard();
  EXPECT_FALSE(serving.successions().change_expected());
}

TEST(Successions, ADrainingVersionIsKeptWhileAGpuletHasASlotForIt) {
  Serving serving;
  serving.parts.models.remove("a", at_ms(1), serving.effects);
  serving.successions().sweep(at_ms(2), serving.effects);
  ASSERT_EQ(serving.parts.models.table().draining().size(), 1U);
  EXPECT_FALSE(serving.parts.models.table().draining()[0].closed);
  serving.parts.dispatcher.set_routes({}, at_ms(3));
  serving.successions().sweep(at_ms(3), serving.effects);
  EXPECT_TRUE(serving.parts.models.table().draining().empty());
}

// Whatever is staged, dropped and served, each version is the current one, the next one, a draining
// one or forgotten, and never two of these.
RC_GTEST_PROP(SuccessionsProperty, EachVersionHasOnePlace, ()) {
  Serving serving;
  std::uint64_t next_gpulet = 8;
  int number = 2;
  const int steps = *rc::gen::inRange(1, 25);
  for (int step = 0; step < steps; ++step) {
    const std::uint32_t before = serving.a().number;
    const std::string current = serving.a().current.id;
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        serving.stage(new_version("a", number++));
        break;
      case 1:
        if (serving.a().next) serving.successions().drop_next(serving.a(), serving.effects);
        break;
      case 2:
        serving.add_gpulet(next_gpulet);
        put_in_force(serving.parts, {route_of(serving.parts, next_gpulet++, {"a"})}, at_ms(step));
        break;
      default:
        serving.successions().go_on(at_ms(step), serving.effects);
        break;
    }
    RC_ASSERT(serving.a().number == before + (serving.a().current.id == current ? 0U : 1U));
    std::set<ModelIndex> indices = {serving.a().current.index};
    if (serving.a().next) RC_ASSERT(indices.insert(serving.a().next->index).second);
    for (const DrainingVersion& draining : serving.parts.models.table().draining())
      RC_ASSERT(indices.insert(draining.version.index).second);
    for (const ModelIndex index : indices)
      RC_ASSERT(serving.parts.models.table().name_of(index) == "a");
  }
}

}  // namespace
}  // namespace gpulet::serve::successions_test
