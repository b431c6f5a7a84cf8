#include "serve/models/model_states.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/serve/ready_gpulet.h"

namespace gpulet::serve::model_states_test {
namespace {

using testing::at_ms;
using testing::byte_model;
using testing::FrontendParts;
using testing::new_version;

// A frontend with model "a" and one backend. The states without a rule of their own here are in
// model_registry_test.cc.
struct States {
  explicit States(const ServedModel& model = byte_model("a", 1000, 10)) {
    parts.models.add(model, at_ms(0));
    parts.join(1, "n0", at_ms(0));
    parts.plan_requests.begin();
    parts.plan_requests.discard();
    states().set_settled(at_ms(0));
  }
  [[nodiscard]] ModelStates& states() { return parts.models.states(); }
  [[nodiscard]] NamedModel& known() { return *parts.models.find("a"); }
  [[nodiscard]] ModelState state() { return states().state_of("a", known()); }
  [[nodiscard]] bool has_reason() { return !states().reason_of("a", known()).empty(); }
  [[nodiscard]] bool unserved() { return !states().why_unserved("a", known()).empty(); }
  void set_source(bool failed, const std::string& text) {
    parts.models.set_sources({{"a", {failed, text}}}, at_ms(1), effects);
  }

  FrontendParts parts;
  FrontendEffects effects;
};

ServedModel without_file() {
  ServedModel model = byte_model("a", 1000, 10);
  model.sha256.clear();
  return model;
}

TEST(ModelStates, ServedElsewhereTheStatesAreThoseThatWereTold) {
  States one;
  ServedModelState told;
  told.name = "a";
  told.state = ModelState::unavailable;
  told.reason = "as told";
  told.number = 7;
  one.states().follow({told}, true);
  EXPECT_EQ(one.state(), ModelState::unavailable);
  EXPECT_EQ(one.states().reason_of("a", one.known()), "as told");
  EXPECT_EQ(one.states().why_unserved("a", one.known()), "as told");
  EXPECT_EQ(one.states().number_of("a", one.known()), 7U);
  ASSERT_NE(one.states().followed("a"), nullptr);
  EXPECT_EQ(one.states().followed("b"), nullptr);

  told.state = ModelState::ready;
  one.states().follow({told}, true);
  EXPECT_EQ(one.state(), ModelState::ready);
  EXPECT_FALSE(one.unserved());

  one.states().follow({}, true);
  EXPECT_EQ(one.state(), ModelState::loading) << "nothing was told of it";
  EXPECT_FALSE(one.has_reason());

  one.states().follow({told}, false);
  EXPECT_EQ(one.states().followed("a"), nullptr);
  EXPECT_EQ(one.states().number_of("a", one.known()), 1U);
}

TEST(ModelStates, TheNumberOfTheModelsFileIsShownWhereItHasOne) {
  States one;
  EXPECT_EQ(one.states().shown_number("a", one.known()), 1U);
  ServedModel described = byte_model("a", 1000, 10);
  ModelDescription description;
  description.version = 42;
  described.description = std::make_shared<const ModelDescription>(description);
  one.parts.models.change(one.known().current.index, described);
  EXPECT_EQ(one.states().shown_number("a", one.known()), 42U);
  EXPECT_EQ(one.states().number_of("a", one.known()), 1U);
}

TEST(ModelStates, WithoutItsFileAModelLoadsUntilItsStoreFails) {
  States one(without_file());
  EXPECT_EQ(one.state(), ModelState::loading);
  EXPECT_TRUE(one.unserved());
  one.set_source(false, "fetching");
  EXPECT_EQ(one.state(), ModelState::loading);
  EXPECT_EQ(one.states().why_unserved("a", one.known()), "fetching");
  one.set_source(true, "refused");
  EXPECT_EQ(one.state(), ModelState::unavailable);
  EXPECT_EQ(one.states().reason_of("a", one.known()), "refused");
}

TEST(ModelStates, AStoresFailureIsLoggedOnceForEachReason) {
  States one;
  const std::size_t before = one.parts.log.events().size();
  one.set_source(false, "fetching");
  EXPECT_EQ(one.parts.log.events().size(), before);
  one.set_source(true, "refused");
  one.set_source(true, "refused");
  EXPECT_EQ(one.parts.log.events().size(), before + 1);
  one.set_source(true, "not found");
  EXPECT_EQ(one.parts.log.events().size(), before + 2);
}

TEST(ModelStates, ANextVersionLeavesTheStateAndHasAReason) {
  States one;
  testing::add_gpulet(one.parts, 7, "n0", {"a"});
  testing::set_ready(one.parts, 7);
  testing::put_in_force(one.parts, {testing::route_of(one.parts, 7, {"a"})});
  EXPECT_EQ(one.state(), ModelState::ready);
  EXPECT_FALSE(one.has_reason());
  one.parts.models.successions().stage(one.known(), new_version("a"), version_of(new_version("a")),
                                       at_ms(1), one.effects);
  EXPECT_EQ(one.state(), ModelState::ready);
  EXPECT_TRUE(one.has_reason());
  EXPECT_FALSE(one.unserved());
}

TEST(ModelStates, AWaitForRoomIsTheReasonOfAModelThatNothingServes) {
  States one;
  EXPECT_FALSE(one.unserved());
  one.known().trial_wait = TrialWait::turn;
  EXPECT_FALSE(one.unserved()) << "it may be served soon";
  EXPECT_TRUE(one.has_reason());
  one.known().trial_wait = TrialWait::room;
  EXPECT_EQ(one.state(), ModelState::unavailable);
}

TEST(ModelStates, AFailureIsTheReasonUntilAnotherGpuletIsReady) {
  States one;
  one.known().failure = {{"n0", 0}, FailureCause::device, {StatusCode::internal, "why"}, "v"};
  EXPECT_EQ(one.state(), ModelState::loading);
  EXPECT_TRUE(one.has_reason());
  EXPECT_FALSE(one.unserved());
}

}  // namespace
}  // namespace gpulet::serve::model_states_test
