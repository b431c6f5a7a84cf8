// Status documents: what commands wait for, events, and their picture; and the screen of `top`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/names.h"
#include "tools/report/format.h"
#include "tools/report/status_document.h"
#include "tools/report/status_picture.h"
#include "tools/report/terminal.h"

namespace gpulet::tools {
namespace {

using nlohmann::json;
using support::has_line;
using support::holds;
using support::names;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kDocument = R"json(
{"frontend":{"state":"serving","uptime_s":12.5,"policy":"elastic","epoch":3,"clients":2,
             "reorganising":false,"schedulable":false},
 "nodes":[{"name":"n0","devices":[
   {"device":0,"type":"cpu-core","partitioning":"cpu_quota","mechanism":"cgroup v1","memory_mb":4096,
    "gpulets":[{"id":17,"size":40,"state":"ready","status":"","duty_cycle_ms":12.4,"in_flight":1,
                "batches":120,"mean_batch":3.4,"busy":0.61,
                "models":[{"name":"lenet","rate":100.0,"batch":5,"latency_ms":6.1,"queued":2}]},
               {"id":18,"size":20,"state":"restarting","status":"its process was killed by signal 9",
                "models":[{"name":"resnet18","rate":12.5,"batch":1},{"name":"bert","rate":3,"batch":2}]}]},
   {"device":1,"type":"cpu-core","partitioning":"cpu_quota","mechanism":"paced","memory_mb":0,"gpulets":[]}]}],
 "models":[{"name":"lenet","slo_ms":50,"rate_seen":98.2,"rate_planned":110.0,"rate_unserved":0.0,"reason":"",
            "queued":2,"offered":1200,"served":1190,"late":3,"dropped":2,"failed":0,"p50_ms":9.1,"p99_ms":31.0,
            "last_minute":{"answered":400,"late":2,"dropped":0,"failed":0}},
           {"name":"vgg16","slo_ms":300.5,"rate_seen":0,"rate_planned":0,"rate_unserved":35,
            "reason":"no device is large enough","queued":0,"offered":0,"served":0,"late":0,"dropped":0,
            "failed":0,"p50_ms":0,"p99_ms":0}],
 "problems":[{"cause":"no_place","grave":true,"model":"vgg16","text":"Cannot place 35.0/s of vgg16: no device is large enough.",
              "fix":"Use a larger device."},
             {"cause":"passed","grave":false,"model":"lenet","text":"lenet serves in time again.","fix":""}],
 "events":[{"at_s":3.2,"text":"epoch 3 serves: 2 gpulets on 1 device"},
           {"at_s":11.25,"text":"gpulet 18 died","count":3}]}
)json";

TEST(StatusPicture, ShowsDevicesModelsAndEvents) {
  const Result<std::string> picture = render_status(kDocument, {});
  ASSERT_TRUE(picture.ok()) << picture.status().to_string();
  EXPECT_EQ(
      picture.value(),
      R"(frontend serving for 12.5 s, policy elastic, epoch 3, clients 2, the plan does not cover every rate

PROBLEM Cannot place 35.0/s of vgg16: no device is large enough.
  -> Use a larger device.
note lenet serves in time again.

n0/0 cpu-core cgroup v1, 4096 MB
  [#### 40% lenet 100/s b5 #####|#### 20% ####|......... 40% free .........]
    20% resnet18 12.5/s b1 + bert 3/s b2 (restarting): its process was killed by signal 9
n0/1 cpu-core paced
  [.............................. 100% free ...............................]

model  seen/s  plan/s  queue  offered  served  dropped  late  failed  p50 ms  p99 ms  SLO ms  viol. %  1 min %
-----  ------  ------  -----  -------  ------  -------  ----  ------  ------  ------  ------  -------  -------
lenet    98.2   110.0      2     1200    1190        2     3       0     9.1    31.0      50     0.42     0.50
vgg16     0.0     0.0      0        0       0        0     0       0       -       -   300.5        -        -

events
       3.2 s  epoch 3 serves: 2 gpulets on 1 device
      11.2 s  gpulet 18 died (3 times)
)");
}

TEST(StatusPicture, ShowsTheCluster) {
  json document = json::parse(kDocument);
  document["cluster"] = {
      {"name", "main"},
      {"member", "f1"},
      {"leads", true},
      {"leader", ""},
      {"term", 17},
      {"doubtful", false},
      {"store", "here"},
      {"store_fault", ""},
      {"members", {{{"name", "f0"}}, {{"name", "f1"}}}},
      {"forwarding", {{"sent", 9}, {"in_flight", 2}, {"waiting", 1}, {"failed", 3}}}};
  EXPECT_TRUE(has_line(render_status(document.dump(), {}).value(),
                       "cluster main: f1 leads, in term 17; members f0, f1"));
  document["cluster"]["leads"] = false;
  document["cluster"]["leader"] = "f0 at host:7000";
  document["cluster"]["store"] = "away";
  document["cluster"]["store_fault"] = "connection refused";
  EXPECT_TRUE(names(render_status(document.dump(), {}).value(), "main", "f1", "f0 at host:7000",
                    "9 sent", "2 in flight", "1 waiting", "3 failed", "f0, f1",
                    "away: connection refused"));
}

TEST(StatusPicture, ShowsWhatThePolicyChoseWhereSpareShareHasChangedIt) {
  const Result<std::string> picture = render_status(
      R"({"frontend":{},"models":[],"nodes":[{"name":"n0","devices":[
          {"device":0,"type":"card","gpulets":[
            {"size":60,"policy_size":20,"state":"ready","models":[{"name":"a","rate":5,"batch":1}]},
            {"size":40,"policy_size":40,"state":"ready","models":[{"name":"b","rate":5,"batch":1}]}]}]}]})",
      {.columns = 100});
  ASSERT_TRUE(picture.ok()) << picture.status().to_string();
  EXPECT_TRUE(names(picture.value(), "60% (policy 20%) a 5/s b1"));
  EXPECT_TRUE(names(picture.value(), "40% b 5/s b1"));
}

TEST(StatusPicture, ShowsWhatGpuletsShareAndCaptureAndHowSlowOnesLoaded) {
  const Result<std::string> picture = render_status(
      R"({"frontend":{},"models":[],"nodes":[{"name":"n0","devices":[
          {"device":0,"type":"h200","gpulets":[
            {"size":60,"state":"ready","sms":72,"shared_sms":24,"sizes_to_capture":17,
             "loading_ms":{"read":120,"copy":300,"warm":800.0,"capture":280},
             "models":[{"name":"a","rate":5,"batch":1}]},
            {"size":40,"state":"ready","sms":48,"shared_sms":0,"sizes_to_capture":0,
             "loading_ms":{"read":1,"copy":2,"warm":3,"capture":4},
             "models":[{"name":"b","rate":5,"batch":1}]}]}]}]})",
      {.columns = 100});
  ASSERT_TRUE(picture.ok()) << picture.status().to_string();
  EXPECT_TRUE(names(picture.value(), "24 of 72"));
  EXPECT_TRUE(names(picture.value(), "17"));
  EXPECT_TRUE(names(picture.value(), "1.5 s", "read 0.1", "copy 0.3", "warm 0.8", "capture 0.3"));
  EXPECT_FALSE(names(picture.value(), "capture 0.0")) << "b loaded fast";
}

TEST(StatusPicture, ShowsTheStepsAndTheFaultOfADevice) {
  const Result<std::string> picture = render_status(
      R"({"frontend":{},"models":[],"nodes":[{"name":"n0","devices":[
          {"device":0,"type":"h200","mechanism":"green","memory_mb":143771,
           "traits":{"step_percent":6.0606},"fault":"GPU is lost","gpulets":[]}]}]})",
      {});
  ASSERT_TRUE(picture.ok()) << picture.status().to_string();
  EXPECT_TRUE(names(picture.value(), "n0/0 h200 green", "143771 MB", "6.1 %", "LOST: GPU is lost"));
}

TEST(StatusPicture, ShowsExclusionsWithTheNextAttempt) {
  const Result<std::string> picture = render_status(
      R"({"frontend":{},"models":[],"nodes":[{"name":"n0","ready":false,"devices":[
          {"device":0,"type":"card","excluded":"no space left","gpulets":[]}]}],
          "exclusions":[{"node":"n0","device":null,"cause":"node_disk","error":"no space left",
                         "failures":2,"retry_in_s":7.5},
                        {"node":"n1","device":3,"cause":"hung","error":"not in time",
                         "failures":1,"retry_in_s":4}],
          "problems":[{"cause":"excluded","grave":true,"node":"n0","device":null,"text":"Node n0: no space left.","fix":"Wait."},
                      {"cause":"excluded","grave":true,"node":"n1","device":3,"text":"Device n1/3: not in time.","fix":""}]})",
      {});
  ASSERT_TRUE(picture.ok()) << picture.status().to_string();
  EXPECT_TRUE(names(picture.value(), "TAKES NO NEW GPULETS"));
  EXPECT_TRUE(names(picture.value(), "no space left", "8 s", "Wait."));
  EXPECT_TRUE(names(picture.value(), "not in time", "4 s"));
}

std::size_t widest(std::string_view text) {
  std::size_t most = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    most = std::max(most, display_width(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return most;
}

TEST(StatusPicture, FitsTheWindowAndKeepsImportantColumns) {
  for (const std::size_t columns : {70U, 120U}) {
    const Result<std::string> picture = render_status(kDocument, {.columns = columns});
    ASSERT_TRUE(picture.ok()) << picture.status().to_string();
    EXPECT_LE(widest(picture.value()), columns) << picture.value();
    for (const char* const part : {"no device is large enough.", "Use a larger device.", "seen/s",
                                   "p99 ms", "SLO ms", "1 min %", "signal 9", "gpulet 18 died"})
      EXPECT_TRUE(names(picture.value(), part)) << columns;
    EXPECT_EQ(picture.value().find("a wider window also shows offered") != std::string::npos,
              columns == 70);
  }
}

TEST(StatusPicture, ShortensNamesAsALastResort) {
  const Result<std::string> picture = render_status(
      R"({"frontend":{},"models":[{"name":"a-model-of-a-very-long-name-indeed-and-more"}]})",
      {.columns = 60});
  ASSERT_TRUE(picture.ok()) << picture.status().to_string();
  EXPECT_LE(widest(picture.value()), 60U) << picture.value();
  EXPECT_TRUE(holds(picture.value(), "a-model-of"));
  EXPECT_TRUE(holds(picture.value(), ".."));
}

TEST(StatusPicture, LimitsTheNumberOfProblems) {
  std::string problems;
  for (int i = 0; i < 40; ++i) {
    problems += (i > 0 ? "," : "") + std::string(R"({"cause":"queue","grave":true,"text":"p)") +
                std::to_string(i) + R"("})";
  }
  const Result<std::string> picture =
      render_status(R"({"frontend":{},"problems":[)" + problems + "]}", {});
  ASSERT_TRUE(picture.ok()) << picture.status().to_string();
  EXPECT_TRUE(has_line(picture.value(), "PROBLEM p9"));
  EXPECT_TRUE(names(picture.value(), "30"));
}

TEST(StatusPicture, RejectsOtherDocuments) {
  EXPECT_EQ(render_status("[1", {}).status().code(), StatusCode::malformed);
  EXPECT_EQ(render_status("[]", {}).status().code(), StatusCode::malformed);
  EXPECT_EQ(render_status("{}", {}).status().code(), StatusCode::malformed);
}

TEST(StatusPicture, LeavesOutMissingFields) {
  const Result<std::string> picture =
      render_status(R"({"frontend":{"state":"starting"},"models":[{"name":"a"}]})", {});
  ASSERT_TRUE(picture.ok()) << picture.status().to_string();
  EXPECT_TRUE(names(picture.value(), "backend"));
}

TEST(DeviceBar, ShowsAnUnusedDeviceAsFree) {
  const std::string bar = draw_device({}, {});
  EXPECT_TRUE(names(bar, " 100% free "));
  EXPECT_EQ(bar.size(), 2U + 72 + 2 + 1);
}

TEST(DeviceBar, KeepsItsWidthWhateverTheShares) {
  const auto share = [](int percent) {
    return DeviceShare{percent, "ready", "", {{"m", "1/s b1"}}};
  };
  for (const std::vector<int>& percents : std::vector<std::vector<int>>{
           {100}, {50, 50}, {20, 20, 20, 20, 20}, {1, 99}, {33, 33, 33}, {60, 40, 60, 40}, {80}}) {
    std::vector<DeviceShare> shares;
    shares.reserve(percents.size());
    for (const int percent : percents) shares.push_back(share(percent));
    const std::string drawn = draw_device(shares, {});
    EXPECT_EQ(drawn.find('\n'), 2U + 72 + 2) << drawn;
  }
}

TEST(StatusPicture, ShowsControlledModels) {
  const Result<std::string> picture = render_status(R"json(
{"frontend":{"state":"serving","uptime_s":9,"policy":"roma","epoch":1,"clients":1,"schedulable":true},
 "nodes":[{"name":"n0","devices":[
   {"device":0,"type":"card","mechanism":"simulated","gpulets":[
     {"size":100,"state":"ready","service":"by_need","models":[{"name":"lenet","rate":0,"batch":1},{"name":"bert","rate":0,"batch":1}]}]},
   {"device":1,"type":"cpu-core","mechanism":"cgroup v2","gpulets":[
     {"size":1,"state":"ready","service":"controlled","cores":{"asked":5,"given":4},"models":[{"name":"lenet","rate":0,"batch":1}]},
     {"size":1,"state":"ready","service":"controlled","cores":{"asked":2.5,"given":2},"models":[{"name":"bert","rate":0,"batch":1}]}]}]}],
 "models":[
   {"name":"lenet","offered":9,"served":9,"control":{"set_point_ms":40,"response_ms":41.25,"gpu_part":0.625,"cores_asked":5,
    "cores_given":4,"periods":60,"violated_periods":3,"on_gpu":700,"on_cpu":200,"core_seconds":95.2}},
   {"name":"bert","control":{"set_point_ms":160,"response_ms":0,"gpu_part":0,"cores_asked":2.5,"cores_given":2,
    "periods":0,"violated_periods":0,"on_gpu":0,"on_cpu":0,"core_seconds":18}},
   {"name":"other"}],
 "controlled_nodes":[{"node":"n0","device":1,"cores":8,"asked":7.5,"given":6,"contention":0.8},
                     {"node":"n1","device":0,"cores":8,"asked":0,"given":0,"contention":0}]})json",
                                                    {});
  ASSERT_TRUE(picture.ok()) << picture.status().to_string();
  EXPECT_TRUE(names(picture.value(), " 100% 2 models, by need "));
  EXPECT_TRUE(holds(picture.value(), R"(
  [####### 50% lenet 4.00 cores #######|### 25% bert ####|... 25% free ....]
    25% bert 2.00 cores
)"));
  EXPECT_TRUE(holds(picture.value(), R"(
controlled  set point ms  response ms  cores given  requested  on GPU %  violated periods  core-seconds
----------  ------------  -----------  -----------  ---------  --------  ----------------  ------------
lenet               40.0         41.2         4.00       5.00      62.5           3 of 60          95.2
bert               160.0            -         2.00       2.50         -            0 of 0          18.0
n0/1: 6.00 of 8 cores given, 7.50 requested, contention 0.80: not enough cores
n1/0: 0.00 of 8 cores given, 0.00 requested
)"));
}

TEST(StatusPicture, NamesTheModelsOfAGpuletOutsideThePlan) {
  const Result<std::string> picture = render_status(
      R"({"frontend":{},"nodes":[{"name":"n0","devices":[{"device":0,"gpulets":[{"id":1,"size":60,"state":"preparing",
          "models":[{"name":"lenet","rate":0,"batch":0}]}]}]}]})",
      {});
  ASSERT_TRUE(picture.ok()) << picture.status().to_string();
  EXPECT_TRUE(names(picture.value(), "# 60% lenet (preparing) #"));
}

TEST(DeviceBar, ListsBelowWhatDoesNotFit) {
  const std::string drawn =
      draw_device({{10, "ready", "", {{"lenet", "100/s b5"}, {"bert", "3/s b2"}}}}, {});
  EXPECT_TRUE(has_line(drawn, "    10% lenet 100/s b5 + bert 3/s b2"));
}

TEST(DeviceBar, UsesBlocksAndColoursIfTheTerminalHasThem) {
  const std::string drawn = draw_device(
      {{50, "ready", "", {{"lenet", ""}}}, {50, "failed", "", {}}}, {.utf8 = true, .colour = true});
  EXPECT_TRUE(holds(drawn, "\033[32m▓"));
  EXPECT_TRUE(holds(drawn, "\033[31m▓"));
  EXPECT_TRUE(holds(drawn, "\033[0m"));
}

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

bool holds(const json& status, const WaitCondition& condition) {
  const auto missing = missing_for(status.dump(), condition);
  EXPECT_TRUE(missing.ok()) << missing.status().to_string();
  return missing.ok() && missing.value().empty();
}

TEST(MissingFor, WaitsForTheFrontendAndTheModels) {
  EXPECT_TRUE(holds(document(), {}));
  EXPECT_FALSE(holds(document(false), {}));
  EXPECT_TRUE(holds(document(), {.models = {"lenet"}}));
  EXPECT_TRUE(holds(document(), {.models = {"vgg16"}})) << "its next request wakes it";
  EXPECT_FALSE(holds(document(), {.models = {"lenet", "bert"}}));
  EXPECT_FALSE(holds(document(false), {.models = {"lenet"}}));
  EXPECT_FALSE(holds(document(), {.all = true}));
  json all = document();
  all["models"][1]["state"] = "ready";
  EXPECT_TRUE(holds(all, {.all = true}));
  all["frontend"]["reorganising"] = true;
  EXPECT_FALSE(holds(all, {.all = true}));
  EXPECT_TRUE(holds(all, {.models = {"lenet", "bert"}}));
}

TEST(MissingFor, NamesTheModelAndTheReason) {
  json status = document();
  status["models"][1]["state"] = "unavailable";
  status["models"][1]["reason"] = "no device is large enough";
  const std::string missing = missing_for(status.dump(), {.all = true}).value();
  EXPECT_TRUE(names(missing, "bert", "no device is large enough"));
}

TEST(MissingFor, FailsForAnUnknownModelOrAnotherDocument) {
  const Status unknown = missing_for(document().dump(), {.models = {"lenett"}}).status();
  EXPECT_EQ(unknown.code(), StatusCode::not_found);
  EXPECT_TRUE(names(unknown, "lenett", "lenet"));
  EXPECT_EQ(missing_for("{}", {}).status().code(), StatusCode::malformed);
  EXPECT_EQ(missing_for("no JSON", {}).status().code(), StatusCode::malformed);
}

TEST(StatusDocument, UnavailableModelsAreSettledWithoutAPlanPending) {
  const auto names = [](bool ready, bool reorganising) {
    const json status = {{"frontend", {{"ready", ready}, {"reorganising", reorganising}}},
                         {"models",
                          {{{"name", "a"}, {"state", "ready"}},
                           {{"name", "b"}, {"state", "unavailable"}, {"reason", "no batch fits"}},
                           {{"name", "c"}, {"state", "loading"}}}}};
    std::vector<std::string> found;
    for (const UnavailableModel& one : unavailable_models(status.dump()).value())
      found.push_back(one.name + ": " + one.reason);
    return found;
  };
  EXPECT_THAT(names(true, false), ElementsAre("b: no batch fits"));
  EXPECT_THAT(names(true, true), IsEmpty());
  EXPECT_THAT(names(false, false), IsEmpty());
  EXPECT_EQ(unavailable_models("{}").status().code(), StatusCode::malformed);
}

json with_events(double uptime_s, const std::vector<std::pair<double, std::string>>& events) {
  json status = document();
  status["frontend"]["uptime_s"] = uptime_s;
  for (const auto& [at_s, text] : events)
    status["events"].push_back({{"at_s", at_s}, {"text", text}, {"warning", text == "bad"}});
  return status;
}
std::vector<std::string> texts(EventTail& tail, const json& status) {
  const auto events = tail.new_events(status.dump());
  EXPECT_TRUE(events.ok()) << events.status().to_string();
  std::vector<std::string> found;
  for (const FrontendEvent& event : events.value()) found.push_back(event.text);
  return found;
}

TEST(EventTail, ReturnsEachEventOnce) {
  using Texts = std::vector<std::string>;
  EventTail tail;
  EXPECT_EQ(texts(tail, with_events(5, {{1, "a"}, {2, "b"}})), (Texts{"a", "b"}));
  EXPECT_EQ(texts(tail, with_events(6, {{1, "a"}, {2, "b"}})), Texts{});
  EXPECT_EQ(texts(tail, with_events(7, {{2, "b"}, {2, "c"}, {3, "d"}, {3, "e"}})),
            (Texts{"c", "d", "e"}))
      << "two events of the same time";
  EXPECT_EQ(texts(tail, with_events(8, {{3, "d"}, {3, "e"}, {3, "f"}})), Texts{"f"});
  EXPECT_EQ(texts(tail, with_events(1, {{0.5, "g"}})), Texts{"g"}) << "the frontend restarted";
  EXPECT_FALSE(tail.new_events("{}").ok());
}

TEST(EventTail, HasTheTimeAndWarnings) {
  EventTail tail;
  const auto events = tail.new_events(with_events(5, {{1, "bad"}}).dump()).value();
  EXPECT_EQ(events, (std::vector<FrontendEvent>{{1, 1001.0, "bad", true}}));
  json older = with_events(5, {{1, "bad"}});
  older["frontend"].erase("started_unix_s");
  EventTail other;
  EXPECT_EQ(other.new_events(older.dump()).value().at(0).unix_s, std::nullopt);
}

TEST(ClockText, HasADateUnlessRecent) {
  constexpr double kNow = 1763898300;
  EXPECT_EQ(clock_text(kNow - 60, kNow).size(), std::string("11:45:02").size());
  EXPECT_EQ(clock_text(kNow - 86400, kNow), date_and_clock_text(kNow - 86400));
  EXPECT_EQ(date_and_clock_text(kNow).size(), std::string("2026-11-23 11:45:02").size());
}

TEST(TopScreen, CutsLinesAndRowsToTheWindow) {
  EXPECT_EQ(compose_screen("title that is long", "one\ntwo\nthree\n", 0, {3, 5}),
            "\033[Htitle\033[K\r\none\033[K\r\ntwo\033[K\033[J");
  EXPECT_EQ(compose_screen("t", "one\ntwo\nthree\n", 2, {3, 5}),
            "\033[Ht\033[K\r\nthree\033[K\033[J");
  EXPECT_EQ(compose_screen("t", "one", 7, {3, 5}), "\033[Ht\033[K\033[J");
}

TEST(TopScreen, ColoursHaveNoWidthAndEndWithTheirLine) {
  EXPECT_TRUE(holds(compose_screen("t", "\033[32m▓▓▓▓\033[0mab", 0, {2, 3}),
                    "\r\n\033[32m▓▓▓\033[0m\033[K"));
  EXPECT_TRUE(holds(compose_screen("t", "a\033[31mb\033[0mc", 0, {2, 3}),
                    "\r\na\033[31mb\033[0mc\033[0m\033[K"));
}

TEST(TopScreen, RecognisesKeys) {
  EXPECT_THAT(keys_of("\033[A\033[6~xq"), ElementsAre(Key::up, Key::page_down, Key::quit));
  EXPECT_THAT(keys_of("\033[15~\033"), IsEmpty());
}

TEST(TopScreen, ScrollsWithinTheText) {
  EXPECT_EQ(scrolled(0, Key::up, 30, 10), 0U);
  EXPECT_EQ(scrolled(0, Key::down, 30, 10), 1U);
  EXPECT_EQ(scrolled(15, Key::page_down, 30, 10), 20U);
  EXPECT_EQ(scrolled(15, Key::page_up, 30, 10), 6U);
  EXPECT_EQ(scrolled(0, Key::last, 30, 10), 20U);
  EXPECT_EQ(scrolled(20, Key::down, 5, 10), 0U);  // the text has become short
  EXPECT_EQ(scrolled(7, Key::first, 30, 10), 0U);
}

}  // namespace
}  // namespace gpulet::tools
