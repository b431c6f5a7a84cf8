// The per-request logs of the original system.
#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "gpulet/observe/trace.h"

namespace gpulet::observe {
namespace {

std::string time_of_day(Time time, const WallClock& wall) {
  using std::chrono::duration_cast;
  const auto since_epoch = wall.since_epoch + (time - wall.engine);
  const auto in_day =
      duration_cast<std::chrono::milliseconds>(since_epoch % std::chrono::hours(24));
  const std::chrono::hh_mm_ss parts(in_day);
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%02d:%02d:%02d:%03d",
                static_cast<int>(parts.hours().count()), static_cast<int>(parts.minutes().count()),
                static_cast<int>(parts.seconds().count()),
                static_cast<int>(parts.subseconds().count()));
  return text.data();
}

std::string ms(Duration duration) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), ",%.6f", to_ms(duration));
  return text.data();
}

// The readers take -1 for a request that was dropped.
std::string id_of(const RequestTraceRecord& record, std::uint64_t id) {
  return record.outcome == StatusCode::ok ? "," + std::to_string(id) : ",-1";
}

std::vector<const RequestTraceRecord*> by_answer(std::span<const RequestTraceRecord> records,
                                                 bool applications) {
  std::vector<const RequestTraceRecord*> chosen;
  for (const RequestTraceRecord& record : records) {
    if (record.application == applications) chosen.push_back(&record);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [](const auto* a, const auto* b) {
    return a->trace.answered < b->trace.answered;
  });
  return chosen;
}

}  // namespace

std::string model_log(std::span<const RequestTraceRecord> records, const WallClock& wall) {
  std::string text =
      "timestamp,task,BatchID,ReqID,deviceID,QUEUEING_DELAY,WAIT_EXEC,BATCH_LAT,EXEC,TO CMPQ,"
      "CMPQ_WRITE\n";
  for (const RequestTraceRecord* record : by_answer(records, false)) {
    const RequestTrace& trace = record->trace;
    RequestStages stages = stages_of(trace);
    if (record->outcome != StatusCode::ok) stages = {stages.all(), {}, {}, {}, {}};
    text += time_of_day(trace.answered, wall) + "," + record->model +
            id_of(*record, trace.batch.value) + id_of(*record, record->id.value) + "," +
            std::to_string(record->device) + ms(stages.queue) + ms(stages.wait) +
            ms(stages.transfer) + ms(stages.execution) + ms(stages.answer) + ms({}) + "\n";
  }
  return text;
}

std::string application_log(std::span<const RequestTraceRecord> records, const WallClock& wall) {
  std::string text = "timestamp,task,TaskID,REQ_TO_EXEC,EXEC\n";
  for (const RequestTraceRecord* record : by_answer(records, true)) {
    // Its readers hold EXEC alone against the objective: it is the whole.
    text += time_of_day(record->trace.answered, wall) + "," + record->model +
            id_of(*record, record->id.value) + ms({}) + ms(stages_of(record->trace).all()) + "\n";
  }
  return text;
}

}  // namespace gpulet::observe
