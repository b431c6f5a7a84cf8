#include "tools/load_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gpulet::tools {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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

TEST(LoadReport, AsATable) {
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
  EXPECT_THAT(load_text(report_of({unanswered()})), Not(HasSubstr("accuracy")));
  EXPECT_FALSE(nlohmann::json::parse(load_json(report_of({unanswered()})))["models"][0].contains(
      "accuracy"));
}

TEST(LoadReport, SaysWhenTheGeneratorWasTooSlow) {
  load::LoadReport report = report_of({lenet()});
  report.sender_lag.p99_ms = 20;
  EXPECT_THAT(load_text(report), HasSubstr("too slow to be believed"));
}

TEST(LoadReport, AsJsonHasTheContractsRows) {
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
}

TEST(RequestCsv, HasALinePerRequestUnderItsHeader) {
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

}  // namespace
}  // namespace gpulet::tools
