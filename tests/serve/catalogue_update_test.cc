#include "serve/requests/catalogue_update.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::catalogue_update_test {
namespace {

using testing::at_ms;
using testing::byte_model;
using testing::FrontendParts;
using testing::only;

// A catalogue of these models, with the profiles in force.
CatalogueChanged catalogue_of(const FrontendParts& parts, std::vector<ServedModel> models,
                              std::vector<std::string> asked_for = {}) {
  CatalogueChanged event;
  event.catalogue.models = std::move(models);
  event.catalogue.profiles = parts.profiles.profiles;
  event.asked_for = std::move(asked_for);
  return event;
}

// Applies a catalogue of these models as a whole. Returns the number of turns.
int apply(FrontendParts& parts, std::vector<ServedModel> models,
          std::vector<std::string> asked_for = {}) {
  FrontendEffects effects;
  parts.catalogue.begin(catalogue_of(parts, std::move(models), std::move(asked_for)), at_ms(0),
                        effects);
  int turns = 0;
  for (; parts.catalogue.in_progress(); ++turns) parts.catalogue.step(at_ms(turns), effects);
  return turns;
}

TEST(CatalogueUpdate, AppliesChangesAndRequestsAPlanIfItMayDependOnThem) {
  struct Case {
    const char* what;
    std::function<void(std::vector<ServedModel>&)> change;
    bool requests_a_plan;
    bool new_version;  // of model a
    std::size_t models;
  };
  const std::vector<Case> cases = {
      {"nothing", [](std::vector<ServedModel>&) {}, false, false, 2},
      {"another description",
       [](std::vector<ServedModel>& models) {
         ModelDescription description;
         description.file_name = "a.pt";
         models[0].description = std::make_shared<const ModelDescription>(description);
       },
       false, false, 2},
      {"another objective", [](std::vector<ServedModel>& models) { models[0].slo_ms = 50; }, true,
       false, 2},
      {"another rate", [](std::vector<ServedModel>& models) { models[0].configured_rate = 20; },
       true, false, 2},
      {"another file", [](std::vector<ServedModel>& models) { models[0].sha256 = "second"; }, true,
       true, 2},
      {"another precision",
       [](std::vector<ServedModel>& models) { models[0].numerics.channels_last = true; }, true,
       true, 2},
      {"a model more",
       [](std::vector<ServedModel>& models) { models.push_back(byte_model("c", 100, 1)); }, true,
       false, 3},
      {"a model less", [](std::vector<ServedModel>& models) { models.pop_back(); }, true, false, 1},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    FrontendParts parts;
    std::vector<ServedModel> models = {byte_model("a", 100, 10), byte_model("b", 100, 10)};
    for (const ServedModel& model : models) parts.models.add(model, at_ms(0));
    one.change(models);
    apply(parts, models);
    EXPECT_EQ(parts.plan_requests.any(), one.requests_a_plan);
    EXPECT_EQ(parts.models.all().size(), one.models);
    const NamedModel& known = *parts.models.find("a");
    EXPECT_EQ(known.next.has_value(), one.new_version);
    EXPECT_EQ(known.wanted().id, version_of(models[0]));
    const ServedModel& served = parts.dispatcher.queues().models()[known.wanted().index];
    EXPECT_EQ(served.slo_ms, models[0].slo_ms);
    EXPECT_EQ(served.description, models[0].description);
  }
}

// The model while its file is in a store.
ServedModel without_file(ServedModel model) {
  model.sha256.clear();
  return model;
}

TEST(CatalogueUpdate, AModelWithoutItsFileWaitsForIt) {
  FrontendParts parts;
  FrontendEffects effects;
  apply(parts, {without_file(byte_model("a", 100, 10))});
  NamedModel& known = *parts.models.find("a");
  EXPECT_TRUE(parts.models.setbacks().withheld("a"));
  EXPECT_EQ(parts.models.states().state_of("a", known), ModelState::loading);
  EXPECT_FALSE(parts.models.states().why_unserved("a", known).empty());
  EXPECT_TRUE(parts.models.table().known_files().empty());

  parts.models.set_sources({{"a", {false, "fetching, 40 %"}}}, at_ms(0), effects);
  EXPECT_EQ(parts.models.states().state_of("a", known), ModelState::loading);
  EXPECT_EQ(parts.models.states().reason_of("a", known), "fetching, 40 %");
  EXPECT_TRUE(effects.empty()) << "progress is no event";
  parts.models.set_sources({{"a", {true, "404"}}}, at_ms(0), effects);
  EXPECT_EQ(parts.models.states().state_of("a", known), ModelState::unavailable);
  EXPECT_EQ(parts.models.states().reason_of("a", known), "404");
  EXPECT_EQ(effects.size(), 1U);
  parts.models.set_sources({{"a", {true, "404"}}}, at_ms(0), effects);
  EXPECT_EQ(effects.size(), 1U) << "it is known";

  parts.models.set_sources({}, at_ms(0), effects);
  apply(parts, {byte_model("a", 100, 10)});
  EXPECT_FALSE(known.next) << "there is nothing that it could take over from";
  EXPECT_EQ(known.current.id, version_of(byte_model("a", 100, 10)));
  EXPECT_EQ(known.number, 1U);
  EXPECT_FALSE(parts.models.setbacks().withheld("a"));
  EXPECT_TRUE(parts.plan_requests.any());
}

TEST(CatalogueUpdate, TheVersionInForceStaysWhileAnotherFileIsFetched) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 100, 10), at_ms(0));
  apply(parts, {without_file(byte_model("a", 50, 10))});
  const NamedModel& known = *parts.models.find("a");
  EXPECT_FALSE(known.next);
  EXPECT_EQ(known.current.id, version_of(byte_model("a", 100, 10)));
  EXPECT_EQ(parts.models.served(known).slo_ms, 50);
  EXPECT_FALSE(parts.models.setbacks().withheld("a"));
}

TEST(CatalogueUpdate, ThePlanThatIsBeingMadeIsOutdatedByAChange) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 100, 10), at_ms(0));
  const std::uint64_t number = parts.plan_requests.begin();
  apply(parts, {byte_model("a", 50, 10)});
  EXPECT_FALSE(parts.plan_requests.finish(number));
}

TEST(CatalogueUpdate, AnAdministratorsLoadEndsQuarantineBackoffAndRefusal) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 100, 0), at_ms(0));
  NamedModel& known = *parts.models.find("a");
  FrontendEffects effects;
  for (int i = 0; i < 4; ++i)
    parts.models.setbacks().quarantine().crashed("a", "ended by signal 11", at_ms(0));
  parts.models.setbacks().back_off("a", kNever);
  parts.models.setbacks().refuse_version(known, {StatusCode::invalid, "no model"}, kNever, at_ms(0),
                                         effects);
  apply(parts, {byte_model("a", 100, 0)});
  EXPECT_TRUE(parts.models.setbacks().withheld("a")) << "the file is the same";
  apply(parts, {byte_model("a", 100, 0)}, {"a"});
  EXPECT_FALSE(parts.models.setbacks().withheld("a"));
  EXPECT_FALSE(parts.demands.asleep(known.demand));
  EXPECT_TRUE(parts.plan_requests.any());
}

TEST(CatalogueUpdate, AnAdministratorsLoadSurvivesTheNextCatalogue) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 100, 0), at_ms(0));
  for (int i = 0; i < 4; ++i)
    parts.models.setbacks().quarantine().crashed("a", "ended by signal 11", at_ms(0));
  ASSERT_TRUE(parts.models.setbacks().withheld("a"));
  FrontendEffects effects;
  parts.catalogue.begin(catalogue_of(parts, {byte_model("a", 100, 0)}, {"a"}), at_ms(0), effects);
  apply(parts, {byte_model("a", 100, 0)});
  EXPECT_FALSE(parts.models.setbacks().withheld("a"));
  EXPECT_FALSE(parts.demands.asleep(parts.models.find("a")->demand));
  EXPECT_TRUE(parts.plan_requests.any());
}

TEST(CatalogueUpdate, NewProfilesOfAnUnfinishedUpdateStillRequestAPlan) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 100, 10), at_ms(0));
  CatalogueChanged event = catalogue_of(parts, {byte_model("a", 100, 10)});
  event.catalogue.profiles = std::make_shared<const profile::ProfileSet>();
  FrontendEffects effects;
  parts.catalogue.begin(std::move(event), at_ms(0), effects);
  ASSERT_FALSE(parts.plan_requests.any());
  apply(parts, {byte_model("a", 100, 10)});
  EXPECT_TRUE(parts.plan_requests.any());
}

TEST(CatalogueUpdate, ALargeCatalogueTakesSeveralTurns) {
  FrontendParts parts;
  std::vector<ServedModel> models;
  for (int i = 0; i < 150; ++i) models.push_back(byte_model("m" + std::to_string(i), 100, 0));
  EXPECT_EQ(apply(parts, models), 3);
  EXPECT_EQ(parts.models.all().size(), 150U);
  EXPECT_EQ(apply(parts, {}), 3) << "removing them as well";
  EXPECT_TRUE(parts.models.all().empty());
}

TEST(CatalogueUpdate, ARejectedCatalogueIsReportedOnce) {
  FrontendParts parts;
  FrontendEffects effects;
  const CatalogueRejected event{{StatusCode::invalid, "models.json:3: no name"}, false};
  parts.catalogue.reject(event, at_ms(0), effects);
  parts.catalogue.reject(event, at_ms(1), effects);
  EXPECT_EQ(only<EventNote>(effects).size(), 1U);
  EXPECT_EQ(parts.file_problems.all().size(), 1U);
  apply(parts, {});
  EXPECT_TRUE(parts.file_problems.all().empty());
}

}  // namespace
}  // namespace gpulet::serve::catalogue_update_test
