#include "tools/told_status.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/clock_text.h"

namespace gpulet::tools {
namespace {

using nlohmann::json;

json document(bool ready = true) {
  return {{"frontend",
           {{"state", ready ? "serving" : "starting"},
            {"ready", ready},
            {"uptime_s", 10.0},
            {"started_unix_s", 1000.0}}},
          {"nodes", {{{"name", "n0"}}}},
          {"models",
           {{{"name", "lenet"}, {"state", "ready"}, {"reason", ""}},
            {{"name", "bert"}, {"state", "loading"}, {"reason", ""}},
            {{"name", "vgg16"}, {"state", "idle"}, {"reason", ""}}}},
          {"events", json::array()}};
}

bool is_there(const json& told, const Wanted& wanted) {
  const auto missing = waits_for(told.dump(), wanted);
  EXPECT_TRUE(missing.ok()) << missing.status().to_string();
  return missing.ok() && missing.value().empty();
}

TEST(WaitsFor, TheFrontendAndTheModelsThatAreNamed) {
  EXPECT_TRUE(is_there(document(), {}));
  EXPECT_FALSE(is_there(document(false), {}));
  EXPECT_TRUE(is_there(document(), {.models = {"lenet"}}));
  EXPECT_TRUE(is_there(document(), {.models = {"vgg16"}})) << "its next request wakes it";
  EXPECT_FALSE(is_there(document(), {.models = {"lenet", "bert"}}));
  EXPECT_FALSE(is_there(document(false), {.models = {"lenet"}}));
  EXPECT_FALSE(is_there(document(), {.all = true}));
  json all = document();
  all["models"][1]["state"] = "ready";
  EXPECT_TRUE(is_there(all, {.all = true}));
  all["frontend"]["reorganising"] = true;
  EXPECT_FALSE(is_there(all, {.all = true}));
  EXPECT_TRUE(is_there(all, {.models = {"lenet", "bert"}}));
}

TEST(WaitsFor, NamesTheModelAndTheReason) {
  json told = document();
  told["models"][1]["state"] = "unavailable";
  told["models"][1]["reason"] = "no device is large enough";
  const std::string missing = waits_for(told.dump(), {.all = true}).value();
  EXPECT_NE(missing.find("bert"), std::string::npos);
  EXPECT_NE(missing.find("no device is large enough"), std::string::npos);
}

TEST(WaitsFor, FailsWhereAModelIsNotThereOrItIsNoStatus) {
  const Status unknown = waits_for(document().dump(), {.models = {"lenett"}}).status();
  EXPECT_EQ(unknown.code(), StatusCode::not_found);
  EXPECT_NE(unknown.message().find("did you mean lenet?"), std::string::npos);
  EXPECT_EQ(waits_for("{}", {}).status().code(), StatusCode::malformed);
  EXPECT_EQ(waits_for("no JSON", {}).status().code(), StatusCode::malformed);
}

json with_events(double uptime_s, const std::vector<std::pair<double, std::string>>& events) {
  json told = document();
  told["frontend"]["uptime_s"] = uptime_s;
  for (const auto& [at_s, text] : events)
    told["events"].push_back({{"at_s", at_s}, {"text", text}, {"warning", text == "bad"}});
  return told;
}
std::vector<std::string> texts(EventTail& tail, const json& told) {
  const auto events = tail.fresh(told.dump());
  EXPECT_TRUE(events.ok()) << events.status().to_string();
  std::vector<std::string> found;
  for (const ToldEvent& event : events.value()) found.push_back(event.text);
  return found;
}

TEST(EventTail, TellsEachEventOnce) {
  using Texts = std::vector<std::string>;
  EventTail tail;
  EXPECT_EQ(texts(tail, with_events(5, {{1, "a"}, {2, "b"}})), (Texts{"a", "b"}));
  EXPECT_EQ(texts(tail, with_events(6, {{1, "a"}, {2, "b"}})), Texts{});
  EXPECT_EQ(texts(tail, with_events(7, {{2, "b"}, {2, "c"}, {3, "d"}, {3, "e"}})),
            (Texts{"c", "d", "e"}))
      << "two at one time are two";
  EXPECT_EQ(texts(tail, with_events(8, {{3, "d"}, {3, "e"}, {3, "f"}})), Texts{"f"});
  EXPECT_EQ(texts(tail, with_events(1, {{0.5, "g"}})), Texts{"g"}) << "it has started again";
  EXPECT_FALSE(tail.fresh("{}").ok());
}

TEST(EventTail, KnowsTheTimeAndWarnings) {
  EventTail tail;
  const auto events = tail.fresh(with_events(5, {{1, "bad"}}).dump()).value();
  EXPECT_EQ(events, (std::vector<ToldEvent>{{1, 1001.0, "bad", true}}));
  json older = with_events(5, {{1, "bad"}});
  older["frontend"].erase("started_unix_s");
  EventTail other;
  EXPECT_EQ(other.fresh(older.dump()).value().at(0).unix_s, std::nullopt);
}

TEST(ClockText, HasADateWhereItIsNotToday) {
  constexpr double kNow = 1763898300;
  EXPECT_EQ(clock_text(kNow - 60, kNow).size(), std::string("11:45:02").size());
  EXPECT_EQ(clock_text(kNow - 86400, kNow), date_and_clock_text(kNow - 86400));
  EXPECT_EQ(date_and_clock_text(kNow).size(), std::string("2026-11-23 11:45:02").size());
}

}  // namespace
}  // namespace gpulet::tools
