#include "gpulet/observe/trace.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

namespace gpulet::observe {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr Time at(int ms) { return Time(milliseconds(ms)); }

// 10 ms of queue, 4 of transfer, 3 of wait, 20 of execution, 4 of answer.
RequestTraceRecord served(std::uint64_t id, int arrived, std::uint64_t batch = 7) {
  RequestTraceRecord record;
  record.id = RequestId{id};
  record.model = "lenet";
  record.client = ClientId{3};
  record.tag = 100 + id;
  record.trace.arrived = at(arrived);
  record.trace.dispatched = at(arrived + 10);
  record.trace.completed = at(arrived + 41);
  record.trace.answered = at(arrived + 41);
  record.trace.queued_at_backend = milliseconds(3);
  record.trace.executed = milliseconds(20);
  record.trace.batch_size = 2;
  record.trace.gpulet = GpuletId{17};
  record.trace.batch = BatchId{batch};
  record.due = at(arrived + 50);
  record.node = "n0";
  record.device = 1;
  record.share = Share{40};
  return record;
}

RequestTraceRecord dropped(std::uint64_t id, int arrived) {
  RequestTraceRecord record;
  record.id = RequestId{id};
  record.model = "vgg";
  record.outcome = StatusCode::too_late;
  record.trace.arrived = at(arrived);
  record.trace.answered = at(arrived + 30);
  return record;
}

RequestTraceRecord whole(std::uint64_t id, int arrived) {
  RequestTraceRecord record = dropped(id, arrived);
  record.model = "traffic";
  record.application = true;
  record.outcome = StatusCode::ok;
  record.trace.executed = milliseconds(12);
  return record;
}

TraceRecords in_chunks(const std::vector<RequestTraceRecord>& records, std::size_t length = 2) {
  TraceRecords chunks;
  for (std::size_t i = 0; i < records.size(); i += length) {
    const auto begin = records.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end =
        records.begin() + static_cast<std::ptrdiff_t>(std::min(i + length, records.size()));
    chunks.push_back(std::make_shared<const std::vector<RequestTraceRecord>>(begin, end));
  }
  return chunks;
}

std::string all_of(const std::unique_ptr<TraceDocument>& text) {
  std::string all;
  for (std::string part = text->next(); !part.empty(); part = text->next()) all += part;
  EXPECT_EQ(text->next(), "");
  return all;
}

TEST(RequestLogTest, HasTheColumnsOfTheOriginalAndMarksDroppedRequests) {
  const std::vector<RequestTraceRecord> records = {dropped(2, 40), served(1, 0), whole(3, 5)};
  // Engine time 0 is 23:59:59.990 of some day.
  const WallClock wall{at(0), std::chrono::hours(24 * 20'000) - milliseconds(10)};
  EXPECT_EQ(all_of(model_log(in_chunks(records), wall)),
            "timestamp,task,BatchID,ReqID,deviceID,QUEUEING_DELAY,WAIT_EXEC,BATCH_LAT,EXEC,TO "
            "CMPQ,CMPQ_WRITE\n"
            "00:00:00:031,lenet,7,1,1,10.000000,3.000000,4.000000,20.000000,4.000000,0.000000\n"
            "00:00:00:060,vgg,-1,-1,0,30.000000,0.000000,0.000000,0.000000,0.000000,0.000000\n");
  EXPECT_EQ(all_of(application_log(in_chunks(records), wall)),
            "timestamp,task,TaskID,REQ_TO_EXEC,EXEC\n"
            "00:00:00:025,traffic,3,0.000000,30.000000\n");
}

TEST(ChromeTraceTest, HasAProcessForEachGpuletAndTheStagesOfEachRequest) {
  const std::vector<RequestTraceRecord> records = {served(1, 100), served(2, 100), dropped(3, 90)};
  const json events = json::parse(all_of(chrome_trace(in_chunks(records))))["traceEvents"];
  std::map<std::string, int> processes;
  std::map<std::string, double> ends;
  std::map<std::string, double> begins;
  std::size_t executions = 0;
  for (const json& event : events) {
    const std::string phase = event["ph"];
    if (phase == "M" && event["name"] == "process_name")
      processes[event["args"]["name"]] = event["pid"];
    if (phase == "X") {
      ++executions;
      EXPECT_EQ(event["pid"], processes.at("n0/1 gpulet 17, 40 %"));
      EXPECT_DOUBLE_EQ(event["dur"], 20'000);
    }
    if (event.value("id", "") != "1") continue;
    EXPECT_EQ(event["pid"], processes.at("n0/1 gpulet 17, 40 %"));
    (phase == "b" ? begins : ends)[event["name"]] = event["ts"];
  }
  EXPECT_EQ(processes.size(), 2U);
  EXPECT_EQ(executions, 1U);                     // both were in one batch
  EXPECT_DOUBLE_EQ(begins.at("lenet"), 10'000);  // after the first arrival
  EXPECT_DOUBLE_EQ(ends.at("queue"), 20'000);
  EXPECT_DOUBLE_EQ(begins.at("batch"), 20'000);
  EXPECT_DOUBLE_EQ(ends.at("transfer"), 24'000);
  EXPECT_DOUBLE_EQ(begins.at("execution"), 27'000);
  EXPECT_DOUBLE_EQ(ends.at("execution"), 47'000);
  EXPECT_DOUBLE_EQ(ends.at("answer"), ends.at("lenet"));
}

TEST(ChromeTraceTest, IsADocumentWithoutRecords) {
  EXPECT_TRUE(json::parse(all_of(chrome_trace({})))["traceEvents"].is_array());
}

TEST(TraceDocumentTest, PartsExceedTheirSizeByAtMostOneRecord) {
  std::vector<RequestTraceRecord> records;
  for (std::uint64_t id = 1; id <= 3000; ++id)
    records.push_back(served(id, static_cast<int>(id), id / 2));
  const TraceRecords chunks = in_chunks(records, 500);
  const WallClock wall{};
  for (const auto& text : {chrome_trace(chunks), model_log(chunks, wall)}) {
    std::size_t parts = 0;
    std::size_t longest = 0;
    for (std::string part = text->next(); !part.empty(); part = text->next()) {
      ++parts;
      longest = std::max(longest, part.size());
    }
    EXPECT_GT(parts, 1U);
    EXPECT_LT(longest, kTracePartBytes + 4096);
  }
  const json events = json::parse(all_of(chrome_trace(chunks)))["traceEvents"];
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const json& event) { return event["ph"] == "X"; }),
            1501);
}

RequestTraceRecord any_record(std::uint64_t id) {
  const auto ms = [](int low, int high) { return *rc::gen::inRange(low, high); };
  RequestTraceRecord record = served(id, ms(0, 100), *rc::gen::inRange<std::uint64_t>(1, 6));
  record.model = *rc::gen::element("lenet", "vgg", "a\"b");
  record.trace.dispatched = record.trace.arrived + milliseconds(ms(0, 50));
  record.trace.answered = record.trace.dispatched + milliseconds(ms(0, 50));
  record.trace.queued_at_backend =
      milliseconds(ms(-5, 60));  // measured by another clock: any value
  record.trace.executed = milliseconds(ms(-5, 60));
  record.trace.gpulet = GpuletId{*rc::gen::inRange<std::uint64_t>(1, 3)};
  record.outcome = *rc::gen::element(StatusCode::ok, StatusCode::ok, StatusCode::unavailable);
  if (ms(0, 4) == 0) record.node.clear();
  if (ms(0, 4) == 0) record.trace.dispatched = Time();
  return record;
}

RC_GTEST_PROP(ChromeTraceProperty, EventsOfARequestNestAndSlicesOfATrackDoNotOverlap, ()) {
  std::vector<RequestTraceRecord> records;
  const std::uint64_t count = *rc::gen::inRange<std::uint64_t>(0, 12);
  for (std::uint64_t id = 1; id <= count; ++id) {
    records.push_back(any_record(id));
    const RequestTrace& trace = records.back().trace;
    RC_ASSERT(stages_of(trace).all() == trace.answered - trace.arrived);
  }
  std::map<std::string, std::vector<std::string>> open;  // by request, innermost last
  std::map<std::string, double> last;                    // by request
  std::map<std::pair<int, int>, double> busy_until;      // by track
  const json document = json::parse(all_of(chrome_trace(in_chunks(records))));
  for (const json& event : document["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "X") {
      double& end = busy_until[{event["pid"], event["tid"]}];
      RC_ASSERT(event["ts"].get<double>() >= end - 1e-6);
      end = event["ts"].get<double>() + event["dur"].get<double>();
    }
    if (phase != "b" && phase != "e") continue;
    const std::string id = event["id"];
    RC_ASSERT(event["ts"].get<double>() >= last[id]);
    last[id] = event["ts"];
    if (phase == "b") {
      open[id].push_back(event["name"]);
    } else {
      RC_ASSERT(open[id].back() == event["name"]);
      open[id].pop_back();
    }
  }
  RC_ASSERT(open.size() == count);
  for (const auto& [id, names] : open) RC_ASSERT(names.empty());
}

}  // namespace
}  // namespace gpulet::observe
