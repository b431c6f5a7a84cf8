// The series of load runs.
#include "tools/report/load_series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/names.h"
#include "tools/report/run_report.h"

namespace gpulet::tools::load_series_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using support::holds;

load::RequestRecord record(std::size_t model, double due_s, double latency_ms,
                           std::uint32_t batch = 1, StatusCode code = StatusCode::ok) {
  load::RequestRecord made;
  made.model = model;
  made.intended = Time(from_seconds(due_s));
  made.settled = made.intended + from_ms(latency_ms);
  made.batch_size = batch;
  if (code != StatusCode::ok) made.status = Status(code, "refused");
  return made;
}

LoadSeries two_models() {
  return {{{"a", milliseconds(100)}, {"b", milliseconds(50)}}, seconds(20), seconds(50)};
}

TEST(LoadSeries, CountsRequestsWhenTheyWereDue) {
  LoadSeries series = two_models();
  series.add(record(0, 1, 100, 4));
  series.add(record(0, 19.95, 101, 2));  // late; its response is of the next period
  series.add(record(1, 41, 1, 0, StatusCode::too_late));
  series.add(record(1, 49, 50));
  const auto rows = nlohmann::json(series.json());
  ASSERT_EQ(rows.size(), 3U) << "the last period is shorter";
  EXPECT_EQ(rows[0]["time_s"], 0);
  EXPECT_EQ(rows[0]["offered"], 2);
  EXPECT_EQ(rows[0]["violations"], 1);
  EXPECT_EQ(rows[0]["models"][0]["name"], "a");
  EXPECT_EQ(rows[0]["models"][0]["response_ms"], 100);
  EXPECT_EQ(rows[0]["models"][0]["batch_run"], 4);
  EXPECT_EQ(rows[0]["models"][1]["offered"], 0);
  EXPECT_TRUE(rows[0]["models"][1]["response_ms"].is_null());
  EXPECT_EQ(rows[1]["time_s"], 20);
  EXPECT_EQ(rows[1]["offered"], 0);
  EXPECT_EQ(rows[1]["models"][0]["response_ms"], 101);
  EXPECT_EQ(rows[2]["offered"], 2);
  EXPECT_EQ(rows[2]["violations"], 1);
  EXPECT_EQ(rows[2]["models"][1]["violations"], 1);
  EXPECT_EQ(rows[2]["models"][1]["response_ms"], 50);
}

// A batch of four and two of one: each response of the four is a quarter of a batch.
TEST(LoadSeries, TheMeanBatchIsThatOfBatches) {
  LoadSeries series = two_models();
  for (const std::uint32_t batch : {4U, 4U, 4U, 4U, 1U, 1U}) series.add(record(0, 1, 10, batch));
  EXPECT_EQ(nlohmann::json(series.json())[0]["models"][0]["batch_run"], 2);
}

TEST(LoadSeries, RequestsOutsideOfTheRunBelongToTheNearestPeriod) {
  LoadSeries series = two_models();
  series.add(record(0, 49.9, 90000));
  const auto rows = nlohmann::json(series.json());
  EXPECT_EQ(rows[2]["offered"], 1);
  EXPECT_EQ(rows[2]["models"][0]["response_ms"], 90000);
}

TEST(LoadSeries, ShowsTheMeanOfWhatServed) {
  LoadSeries series = two_models();
  series.deployed({.devices = 1, .share_percent = 40}, seconds(3));
  series.deployed({.devices = 2, .share_percent = 100}, seconds(4));
  const auto rows = nlohmann::json(series.json());
  EXPECT_EQ(rows[0]["devices"], 1.5);
  EXPECT_EQ(rows[0]["share_percent"], 70);
  EXPECT_TRUE(rows[1]["devices"].is_null());
}

TEST(LoadSeries, HasTheColumnsOfASimulation) {
  LoadSeries series = two_models();
  series.add(record(0, 1, 200, 2));
  series.deployed({.devices = 1, .share_percent = 40}, seconds(3));
  std::istringstream lines(series.csv());
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line,
            "time_s,devices,share_percent,offered,violations,a offered,a violations,b offered,b "
            "violations,a batch run,b batch run,a response_ms,b response_ms");
  std::getline(lines, line);
  EXPECT_EQ(line, "0,1,40,1,1,1,1,0,0,2,0,200,0");
  std::getline(lines, line);
  EXPECT_EQ(line, "20,,,0,0,0,0,0,0,0,0,0,0");

  simulate::Outcome simulated;
  simulated.models.resize(2);
  simulated.models[0].name = "a";
  simulated.models[1].name = "b";
  std::string header = series_csv(simulated);
  header.pop_back();
  std::istringstream columns(series.csv().substr(0, series.csv().find('\n')));
  for (std::string column; std::getline(columns, column, ',');)
    EXPECT_TRUE((',' + header + ',').find(',' + column + ',') != std::string::npos) << column;
}

TEST(LoadSeries, TheTableHasThePeriodsOverTheObjective) {
  LoadSeries series = two_models();
  for (int i = 0; i < 200; ++i) series.add(record(0, 1, 10));
  series.add(record(0, 1, 200));  // half a percent
  EXPECT_TRUE(holds(series.text(), ": 0 of 3"));
  series.add(record(0, 21, 200));
  series.add(record(0, 21, 10));
  EXPECT_TRUE(holds(series.text(), ": 1 of 3"));
  EXPECT_TRUE(holds(series.text(), "50.00"));
}

TEST(LoadSeries, IsPartOfTheReport) {
  LoadSeries series = two_models();
  series.add(record(0, 1, 200));
  const auto document = nlohmann::json::parse(load_json({}, &series));
  EXPECT_EQ(document["period_s"], 20);
  EXPECT_EQ(document["series"], nlohmann::json(series.json()));
  EXPECT_FALSE(nlohmann::json::parse(load_json({})).contains("series"));
  EXPECT_TRUE(holds(load_text({}, &series), series.text()));
}

TEST(Deployment, CountsTheGpuletsThatAreReady) {
  const auto found = deployment_of(R"({"nodes":[
      {"devices":[{"gpulets":[{"size":40,"state":"ready"},{"size":20,"state":"retiring"}]},
                  {"gpulets":[]}]},
      {"devices":[{"gpulets":[{"size":50,"state":"loading"}]},
                  {"gpulets":[{"size":60,"state":"ready"},{"size":30,"state":"ready"}]}]}]})");
  EXPECT_EQ(found.value(), (Deployment{.devices = 2, .share_percent = 130}));
}

TEST(Deployment, RefusesOtherDocuments) {
  for (const char* text : {"", "[]", "{}", R"({"nodes":1})", R"({"nodes":[{"devices":{"a":1}}]})",
                           R"({"nodes":[{"devices":[{"gpulets":[{"state":"ready"}]}]}]})"})
    EXPECT_EQ(deployment_of(text).status().code(), StatusCode::malformed) << text;
}

}  // namespace
}  // namespace gpulet::tools::load_series_test
