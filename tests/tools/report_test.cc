// Tables, and the reports of load runs and plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"
#include "tools/report/format.h"
#include "tools/report/plan_report.h"
#include "tools/report/run_report.h"

namespace gpulet::tools {
namespace {

using schedule::PlannedGpulet;
using schedule::Service;
using std::chrono::milliseconds;
using support::holds;
using support::names;
using ::testing::StartsWith;

TEST(Table, AlignsColumnsByCharactersNotBytes) {
  Table table({{"model", Table::Align::left}, {"rate"}, {"note", Table::Align::left}});
  table.add_row({"lenet", "100.0", ""});
  table.add_row({"größe", "5.0", "µs"});
  EXPECT_EQ(table.to_string(),
            "model   rate  note\n"
            "-----  -----  ----\n"
            "lenet  100.0\n"
            "größe    5.0  µs\n");
}

TEST(Table, PrintsItsTitlesWithoutRows) {
  EXPECT_EQ(Table({{"a"}, {"bc"}}).to_string(), "a  bc\n-  --\n");
}

TEST(Table, RejectsARowWithTheWrongNumberOfCells) {
  EXPECT_THROW(Table({{"a"}}).add_row({"1", "2"}), std::invalid_argument);
}

TEST(Wrapped, BreaksBetweenWordsAndIndents) {
  EXPECT_EQ(wrapped("one two three four", 10, 2), "one two\n  three\n  four\n");
  EXPECT_EQ(wrapped("  3.2 s  it serves", 16, 4), "  3.2 s  it\n    serves\n");
  EXPECT_EQ(wrapped("one two", 0, 2), "one two\n");
  EXPECT_EQ(wrapped("", 10, 2), "\n");
}

TEST(Wrapped, BreaksAWordLongerThanALine) {
  EXPECT_EQ(wrapped("/a/very/long/path/of/a/file x", 12, 2),
            "/a/very/long\n  /path/of/a\n  /file x\n");
  EXPECT_EQ(wrapped("größer als alles", 12, 0), "größer als\nalles\n");
}

TEST(Numbers, AreRoundedAndADashIfNotFinite) {
  EXPECT_EQ(fixed(12.345, 1), "12.3");
  EXPECT_EQ(fixed(0, 2), "0.00");
  EXPECT_EQ(fixed(std::numeric_limits<double>::quiet_NaN(), 1), "-");
  EXPECT_EQ(fixed(std::numeric_limits<double>::max(), 0).size(), 309U);
  EXPECT_EQ(shortest(40.0, 2), "40");
  EXPECT_EQ(shortest(12.50, 2), "12.5");
  EXPECT_EQ(shortest(100, 0), "100");
}

load::ModelRow lenet() {
  load::ModelRow row;
  row.name = "lenet";
  row.offered = 1000;
  row.served = 990;
  row.dropped = 4;
  row.late = 5;
  row.errors = 6;
  row.p50_ms = 9.12;
  row.p99_ms = 31;
  row.slo_ms = 50;
  row.violation = 0.015;
  row.accuracy = 0.9725;
  row.reasons[StatusCode::too_late] = {4, "its deadline cannot be met"};
  return row;
}

load::ModelRow unanswered() {
  load::ModelRow row;
  row.name = "bert";
  row.offered = 1000;
  row.errors = 1000;
  row.slo_ms = 400;
  row.violation = 1;
  return row;
}

load::LoadReport report_of(std::vector<load::ModelRow> rows) {
  load::LoadReport report;
  report.models = std::move(rows);
  report.sender_lag = {0.05, 1.5};
  return report;
}

TEST(LoadReport, PrintsATable) {
  EXPECT_EQ(
      load_text(report_of({lenet(), unanswered()})),
      R"(model  offered  served  dropped  late  errors  p50 ms  p99 ms  SLO ms  violation %  accuracy
-----  -------  ------  -------  ----  ------  ------  ------  ------  -----------  --------
lenet     1000     990        4     5       6     9.1    31.0      50         1.50    0.9725
bert      1000       0        0     0    1000       -       -     400       100.00         -

violation of all together: 50.75 %
sent behind schedule: p99 0.05 ms, at most 1.50 ms
lenet: 4 times too_late, first: its deadline cannot be met
)");
}

TEST(LoadReport, WithoutLabelsHasNoAccuracy) {
  EXPECT_FALSE(holds(load_text(report_of({unanswered()})), "accuracy"));
  EXPECT_FALSE(nlohmann::json::parse(load_json(report_of({unanswered()})))["models"][0].contains(
      "accuracy"));
}

TEST(LoadReport, WarnsOfASlowGenerator) {
  load::LoadReport report = report_of({lenet()});
  report.sender_lag.p99_ms = 20;
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines(load_text(report)), lines(load_text(report_of({lenet()}))) + 1);
}

TEST(LoadReport, HasADocumentWithARowPerModel) {
  const auto document = nlohmann::json::parse(load_json(report_of({lenet(), unanswered()})));
  const auto& row = document["models"][0];
  EXPECT_EQ(row["name"], "lenet");
  EXPECT_EQ(row["offered"], 1000);
  EXPECT_EQ(row["served"], 990);
  EXPECT_EQ(row["dropped"], 4);
  EXPECT_EQ(row["late"], 5);
  EXPECT_EQ(row["errors"], 6);
  EXPECT_EQ(row["p50_ms"], 9.12);
  EXPECT_EQ(row["p99_ms"], 31);
  EXPECT_EQ(row["slo_ms"], 50);
  EXPECT_EQ(row["violation"], 0.015);
  EXPECT_EQ(row["accuracy"], 0.9725);
  EXPECT_TRUE(document["models"][1]["p99_ms"].is_null());
  EXPECT_EQ(document["violation"], 0.5075);
  EXPECT_EQ(document["threads"], 1);
}

TEST(RequestCsv, HasALinePerRequest) {
  load::RequestRecord record;
  record.intended = Time(milliseconds(1500));
  record.sent = Time(milliseconds(1501));
  record.settled = Time(milliseconds(1510));
  record.batch_size = 4;
  record.queued = milliseconds(2);
  record.executed = milliseconds(3);
  EXPECT_EQ(request_csv_header(),
            "model,intended_s,sent_s,latency_ms,status,batch_size,queued_ms,executed_ms\n");
  EXPECT_EQ(request_csv_line("lenet", record), "lenet,1.500000,1.501000,10.000,ok,4,2.000,3.000\n");
  record.sent.reset();
  record.status = Status(StatusCode::unavailable, "no connection");
  EXPECT_THAT(request_csv_line("lenet", record), StartsWith("lenet,1.500000,,10.000,unavailable,"));
}

// A card for both models, and each on CPU cores.
schedule::Plan plan_of_instances() {
  const schedule::Assignment lenet{"lenet", 0, 1, 6.1, 1, 50};
  const schedule::Assignment bert{"bert", 0, 1, 20, 1, 200};
  schedule::Plan plan;
  plan.policy = "roma";
  plan.gpulets = {
      PlannedGpulet{{"n0", 0}, Share{100}, 0, {lenet, bert}, {}, Service::by_need},
      PlannedGpulet{{"n0", 1}, Share{1}, 0, {lenet}, {}, Service::controlled},
      PlannedGpulet{{"n0", 1}, Share{1}, 0, {bert}, {}, Service::controlled},
      PlannedGpulet{{"n1", 0}, Share{40}, 12.5, {{"lenet", 100, 5, 6.1, 1, 50}}, {}, {}}};
  return plan;
}

TEST(PlanReport, AnInstanceHasNoRateAndAControlledOneNoSize) {
  ::testing::internal::CaptureStdout();
  print_plan({plan_of_instances(), 12, {{{}, {}}, {{}}, {{}}, {{0.00512}}}}, 3, /*json=*/false);
  EXPECT_EQ(
      ::testing::internal::GetCapturedStdout(),
      R"(DEVICE      SIZE %  CYCLE ms  MODEL              RATE /s  BATCH  LATENCY ms  SLO ms  LATE %
------  ----------  --------  -----------------  -------  -----  ----------  ------  ------
n0/0           100         -  2 models, by need        -      -           -       -       -
n0/1    controlled         -  lenet                    -      1           -      50       -
n0/1    controlled         -  bert                     -      1           -     200       -
n1/0            40     12.50  lenet                  100      5        6.10      50    0.51

roma: schedulable, 3 of 3 devices, planned in 12 us
)");
}

TEST(PlanReport, PrintsTheLayoutsOfDevices) {
  ::testing::internal::CaptureStdout();
  print_layouts({plan_of_instances(), 12}, 3, /*json=*/false);
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(names(printed, "100 %", "2 models", "by need"));
  EXPECT_TRUE(names(printed, "controlled bert", "controlled lenet"));
}

TEST(PlanReport, TheDocumentNamesOtherServicesThanRoundsAndCanBeRead) {
  const schedule::Plan plan = plan_of_instances();
  const nlohmann::ordered_json document = plan_json({plan, 12, {{{}, {}}, {{}}, {{}}, {{0.005}}}});
  EXPECT_EQ(document["gpulets"][3]["assignments"][0]["predicted_violation"], 0.005);
  EXPECT_FALSE(document["gpulets"][1]["assignments"][0].contains("predicted_violation"));
  EXPECT_EQ(document["gpulets"][0]["service"], "by_need");
  EXPECT_EQ(document["gpulets"][1]["service"], "controlled");
  EXPECT_FALSE(document["gpulets"][3].contains("service"));
  const support::TemporaryFolder folder;
  const Result<schedule::Plan> read = read_plan(folder.write("plan.json", document.dump()));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read.value(), plan);
}

}  // namespace
}  // namespace gpulet::tools
