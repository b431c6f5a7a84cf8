// The per-request logs of the original system.
#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
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

std::string model_row(const RequestTraceRecord& record, const WallClock& wall) {
  const RequestTrace& trace = record.trace;
  RequestStages stages = stages_of(trace);
  if (record.outcome != StatusCode::ok) stages = {stages.all(), {}, {}, {}, {}};
  return time_of_day(trace.answered, wall) + "," + record.model + id_of(record, trace.batch.value) +
         id_of(record, record.id.value) + "," + std::to_string(record.device) + ms(stages.queue) +
         ms(stages.wait) + ms(stages.transfer) + ms(stages.execution) + ms(stages.answer) + ms({}) +
         "\n";
}

// Its readers hold EXEC alone against the objective: it is the whole.
std::string application_row(const RequestTraceRecord& record, const WallClock& wall) {
  return time_of_day(record.trace.answered, wall) + "," + record.model +
         id_of(record, record.id.value) + ms({}) + ms(stages_of(record.trace).all()) + "\n";
}

struct LogForm {
  const char* head;
  bool applications;
  std::string (*row)(const RequestTraceRecord&, const WallClock&);
};
constexpr LogForm kModelLog{
    "timestamp,task,BatchID,ReqID,deviceID,QUEUEING_DELAY,WAIT_EXEC,BATCH_LAT,EXEC,TO CMPQ,"
    "CMPQ_WRITE\n",
    false, model_row};
constexpr LogForm kApplicationLog{"timestamp,task,TaskID,REQ_TO_EXEC,EXEC\n", true,
                                  application_row};

class Log final : public TraceText {
 public:
  Log(const LogForm& form, TraceRecords records, const WallClock& wall)
      : form_(form), records_(std::move(records)), wall_(wall) {}

  std::string next() override {
    std::string part;
    if (!begun_) {
      begun_ = true;
      sort_by_answer();
      part = form_.head;
    }
    for (; written_ < rows_.size() && part.size() < kTracePartBytes; ++written_)
      part += form_.row(*rows_[written_], wall_);
    return part;
  }

 private:
  void sort_by_answer() {
    for (const TraceChunk& chunk : records_) {
      for (const RequestTraceRecord& record : *chunk) {
        if (record.application == form_.applications) rows_.push_back(&record);
      }
    }
    std::stable_sort(rows_.begin(), rows_.end(), [](const auto* a, const auto* b) {
      return a->trace.answered < b->trace.answered;
    });
  }

  const LogForm form_;
  const TraceRecords records_;
  const WallClock wall_;
  std::vector<const RequestTraceRecord*> rows_;
  std::size_t written_ = 0;  // of them
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<TraceText> model_log(TraceRecords records, const WallClock& wall) {
  return std::make_unique<Log>(kModelLog, std::move(records), wall);
}

std::unique_ptr<TraceText> application_log(TraceRecords records, const WallClock& wall) {
  return std::make_unique<Log>(kApplicationLog, std::move(records), wall);
}

}  // namespace gpulet::observe
