#include "gpulet/observe/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <tuple>

#include "gpulet/base/text.h"

namespace gpulet::observe {
namespace {

// ---- stages

// Takes `duration` from `left`, or all of `left` if that is less.
Duration take(Duration& left, Duration duration) {
  const Duration taken = std::clamp(duration, Duration::zero(), left);
  left -= taken;
  return taken;
}

// ---- the trace event format
//
// Requests overlap, so each is an asynchronous event that contains its stages. The executions of a
// gpulet do not overlap, so they are plain slices.

constexpr int kFrontend = 1;  // process id of the frontend

bool was_served(const RequestTraceRecord& record) {
  return record.outcome == StatusCode::ok && !record.application && !record.node.empty();
}

std::string text_of(double number) {
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
}

class ChromeTrace final : public TraceDocument {
 public:
  explicit ChromeTrace(TraceRecords records) : records_(std::move(records)) {}

  std::string next() override {
    part_.clear();
    switch (stage_) {
      case Stage::begin:
        assign_positions();
        write_names();
        stage_ = Stage::requests;
        [[fallthrough]];
      case Stage::requests:
        for (; next_ < all_.size() && part_.size() < kTracePartBytes; ++next_)
          write_request(*all_[next_]);
        if (next_ < all_.size()) break;
        order_executions();
        stage_ = Stage::executions;
        [[fallthrough]];
      case Stage::executions:
        for (; next_ < ordered_.size() && part_.size() < kTracePartBytes; ++next_)
          write_execution(ordered_[next_].first, ordered_[next_].second);
        if (next_ < ordered_.size()) break;
        part_ += "\n]}\n";
        stage_ = Stage::done;
        break;
      case Stage::done:
        break;
    }
    return part_;
  }

 private:
  enum class Stage : std::uint8_t { begin, requests, executions, done };
  using GpuletKey = std::tuple<std::string, std::uint32_t, std::uint64_t>;
  struct Position {
    int process = kFrontend;
    int track = 0;
  };
  struct Execution {
    Position position;
    Time from;
    Time to;
    std::uint32_t size = 0;
  };
  struct Track {
    int number = 0;
    std::string name;  // a JSON string
  };

  static GpuletKey gpulet_of(const RequestTraceRecord& record) {
    return {record.node, record.device, record.trace.gpulet.value};
  }

  // Numbers processes and tracks by name, so that the documents of one run look alike.
  void assign_positions() {
    std::map<GpuletKey, std::string> gpulets;
    std::set<std::string> models;
    for (const TraceChunk& chunk : records_) {
      for (const RequestTraceRecord& record : *chunk) {
        all_.push_back(&record);
        start_ = std::min(start_, record.trace.arrived);
        models.insert(record.model);
        if (!was_served(record)) continue;
        gpulets.emplace(gpulet_of(record),
                        fmt::format("{}/{} gpulet {}, {} %", record.node, record.device,
                                    record.trace.gpulet.value, record.share.percent));
      }
    }
    process_names_[kFrontend] = "frontend";
    int process = kFrontend;
    for (const auto& [gpulet, name] : gpulets) {
      processes_[gpulet] = ++process;
      process_names_[process] = name;
    }
    int track = 0;
    for (const std::string& model : models) tracks_[model] = {++track, json_string(model)};
    for (const RequestTraceRecord* record : all_) {
      const Position position = position_of(*record);
      track_names_.try_emplace({position.process, position.track}, record->model);
    }
  }

  Position position_of(const RequestTraceRecord& record) const {
    const int track = tracks_.at(record.model).number;
    return {was_served(record) ? processes_.at(gpulet_of(record)) : kFrontend, track};
  }

  std::string microseconds(Time time) const {
    return text_of(std::chrono::duration<double, std::micro>(time - start_).count());
  }

  void write_names() {
    part_ += R"({"displayTimeUnit":"ms","traceEvents":[)";
    for (const auto& [position, name] : process_names_)
      write_name(position, 0, "process_name", name);
    for (const auto& [track, name] : track_names_)
      write_name(track.first, track.second, "thread_name", name);
  }

  // Begins an event; the caller ends it.
  void begin_event(const char* phase, Position position) {
    part_ += fmt::format(R"({}{{"ph":"{}","pid":{},"tid":{})", first_ ? "\n" : ",\n", phase,
                         position.process, position.track);
    first_ = false;
  }

  void write_name(int process, int track, const char* kind, const std::string& name) {
    begin_event("M", {process, track});
    part_ += fmt::format(R"(,"name":"{}","args":{{"name":{}}}}})", kind, json_string(name));
  }

  // Begins the event at one end of a span; `name` is a JSON string. The caller closes the brace.
  void begin_edge(const char* phase, const RequestTraceRecord& record, Position position,
                  std::string_view name, Time time) {
    begin_event(phase, position);
    part_ += fmt::format(R"(,"cat":"{}","name":{},"id":"{}","ts":{})",
                         record.application ? "application" : "request", name, record.id.value,
                         microseconds(time));
  }

  void write_span(const RequestTraceRecord& record, Position position, std::string_view name,
                  Time from, Time to) {
    begin_edge("b", record, position, name, from);
    part_ += '}';
    begin_edge("e", record, position, name, to);
    part_ += '}';
  }

  void write_request(const RequestTraceRecord& record) {
    const RequestTrace& trace = record.trace;
    const RequestStages stages = stages_of(trace);
    const Time end = trace.arrived + stages.all();
    const Position position = position_of(record);
    const std::string& name = tracks_.at(record.model).name;
    begin_edge("b", record, position, name, trace.arrived);
    part_ += fmt::format(
        R"(,"args":{{"request":{},"client":{},"tag":{},"outcome":"{}","late":{},"due_ms":{},)"
        R"("batch_size":{}}}}})",
        record.id.value, record.client.value, record.tag, to_string(record.outcome), record.late(),
        text_of(to_ms(record.due - trace.arrived)), trace.batch_size);
    if (was_served(record)) {
      const Time sent = trace.arrived + stages.queue;
      const Time received = sent + stages.transfer;
      const Time started = received + stages.wait;
      const Time executed = started + stages.execution;
      write_span(record, position, R"("queue")", trace.arrived, sent);
      begin_edge("b", record, position, R"("batch")", sent);
      part_ +=
          fmt::format(R"(,"args":{{"batch":{},"size":{}}}}})", trace.batch.value, trace.batch_size);
      write_span(record, position, R"("transfer")", sent, received);
      write_span(record, position, R"("wait")", received, started);
      write_span(record, position, R"("execution")", started, executed);
      write_span(record, position, R"("answer")", executed, end);
      begin_edge("e", record, position, R"("batch")", end);
      part_ += '}';
      executions_[trace.batch] = {position, started, executed, trace.batch_size};
    }
    begin_edge("e", record, position, name, end);
    part_ += '}';
  }

  void order_executions() {
    ordered_.assign(executions_.begin(), executions_.end());
    executions_.clear();
    std::stable_sort(ordered_.begin(), ordered_.end(),
                     [](const auto& a, const auto& b) { return a.second.from < b.second.from; });
    next_ = 0;
  }

  // Start times are estimates (RequestStages), so executions may seem to overlap. Slices of one
  // track must not.
  void write_execution(BatchId batch, const Execution& execution) {
    Time& end = ends_[{execution.position.process, execution.position.track}];
    const Time from = std::max(execution.from, end);
    end = std::max(from, execution.to);
    begin_event("X", execution.position);
    part_ += fmt::format(R"(,"cat":"execution","name":"execution of {0}","ts":{1},"dur":{2},)"
                         R"("args":{{"batch":{3},"size":{0}}}}})",
                         execution.size, microseconds(from),
                         text_of(std::chrono::duration<double, std::micro>(end - from).count()),
                         batch.value);
  }

  const TraceRecords records_;
  std::vector<const RequestTraceRecord*> all_;
  Stage stage_ = Stage::begin;
  std::size_t next_ = 0;  // index of the next request, then of the next execution
  bool first_ = true;     // no event written yet
  std::string part_;
  Time start_ = kNever;
  std::map<GpuletKey, int> processes_;
  std::map<std::string, Track> tracks_;  // by model; the same numbers in every process
  std::map<int, std::string> process_names_;
  std::map<std::pair<int, int>, std::string> track_names_;
  std::map<BatchId, Execution> executions_;
  std::vector<std::pair<BatchId, Execution>> ordered_;
  std::map<std::pair<int, int>, Time> ends_;  // end of the last slice of each track
};

// ---- the request logs of the original system

std::string time_of_day(Time time, const WallClock& wall) {
  const auto since_epoch = wall.since_epoch + (time - wall.engine);
  const std::chrono::hh_mm_ss parts(
      std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch % std::chrono::hours(24)));
  return fmt::format("{:02d}:{:02d}:{:02d}:{:03d}", parts.hours().count(), parts.minutes().count(),
                     parts.seconds().count(), parts.subseconds().count());
}

// The scripts take -1 as a dropped request.
std::string id_of(const RequestTraceRecord& record, std::uint64_t id) {
  return record.outcome == StatusCode::ok ? std::to_string(id) : "-1";
}

std::string model_row(const RequestTraceRecord& record, const WallClock& wall) {
  const RequestTrace& trace = record.trace;
  RequestStages stages = stages_of(trace);
  if (record.outcome != StatusCode::ok) stages = {stages.all(), {}, {}, {}, {}};
  return fmt::format("{},{},{},{},{},{:.6f},{:.6f},{:.6f},{:.6f},{:.6f},{:.6f}\n",
                     time_of_day(trace.answered, wall), record.model,
                     id_of(record, trace.batch.value), id_of(record, record.id.value),
                     record.device, to_ms(stages.queue), to_ms(stages.wait), to_ms(stages.transfer),
                     to_ms(stages.execution), to_ms(stages.answer), 0.0);
}

// The scripts compare EXEC alone with the objective, so it holds the whole latency.
std::string application_row(const RequestTraceRecord& record, const WallClock& wall) {
  return fmt::format("{},{},{},{:.6f},{:.6f}\n", time_of_day(record.trace.answered, wall),
                     record.model, id_of(record, record.id.value), 0.0,
                     to_ms(stages_of(record.trace).all()));
}

struct LogFormat {
  const char* header;
  bool applications;
  std::string (*row)(const RequestTraceRecord&, const WallClock&);
};
constexpr LogFormat kModelLog{
    "timestamp,task,BatchID,ReqID,deviceID,QUEUEING_DELAY,WAIT_EXEC,BATCH_LAT,EXEC,TO CMPQ,"
    "CMPQ_WRITE\n",
    false, model_row};
constexpr LogFormat kApplicationLog{"timestamp,task,TaskID,REQ_TO_EXEC,EXEC\n", true,
                                    application_row};

class Log final : public TraceDocument {
 public:
  Log(const LogFormat& format, TraceRecords records, const WallClock& wall)
      : format_(format), records_(std::move(records)), wall_(wall) {}

  std::string next() override {
    std::string part;
    if (!begun_) {
      begun_ = true;
      sort_by_answer();
      part = format_.header;
    }
    for (; written_ < rows_.size() && part.size() < kTracePartBytes; ++written_)
      part += format_.row(*rows_[written_], wall_);
    return part;
  }

 private:
  void sort_by_answer() {
    for (const TraceChunk& chunk : records_) {
      for (const RequestTraceRecord& record : *chunk) {
        if (record.application == format_.applications) rows_.push_back(&record);
      }
    }
    std::stable_sort(rows_.begin(), rows_.end(), [](const auto* a, const auto* b) {
      return a->trace.answered < b->trace.answered;
    });
  }

  const LogFormat format_;
  const TraceRecords records_;
  const WallClock wall_;
  std::vector<const RequestTraceRecord*> rows_;
  std::size_t written_ = 0;  // rows
  bool begun_ = false;
};

}  // namespace

RequestStages stages_of(const RequestTrace& trace) {
  RequestStages stages;
  Duration left = std::max(Duration::zero(), trace.answered - trace.arrived);
  if (trace.dispatched == Time()) {  // never in a batch; for applications `executed` is set
    stages.execution = take(left, trace.executed);
    stages.queue = left;
    return stages;
  }
  stages.queue = take(left, trace.dispatched - trace.arrived);
  stages.execution = take(left, trace.executed);
  stages.wait = take(left, trace.queued_at_backend);
  stages.transfer = left / 2;
  stages.answer = left - stages.transfer;
  return stages;
}

std::unique_ptr<TraceDocument> chrome_trace(TraceRecords records) {
  return std::make_unique<ChromeTrace>(std::move(records));
}

std::unique_ptr<TraceDocument> model_log(TraceRecords records, const WallClock& wall) {
  return std::make_unique<Log>(kModelLog, std::move(records), wall);
}

std::unique_ptr<TraceDocument> application_log(TraceRecords records, const WallClock& wall) {
  return std::make_unique<Log>(kApplicationLog, std::move(records), wall);
}

}  // namespace gpulet::observe
