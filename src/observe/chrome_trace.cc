// The trace event format. Requests overlap, so each is an asynchronous event with its stages
// inside; the executions of a gpulet do not, so they are plain slices.
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "gpulet/observe/trace.h"

namespace gpulet::observe {
namespace {

constexpr int kFrontend = 1;  // its process

bool was_served(const RequestTraceRecord& record) {
  return record.outcome == StatusCode::ok && !record.application && !record.node.empty();
}

// As JSON has it, in quotes.
std::string in_quotes(std::string_view text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string text_of(double number) {
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
}

class ChromeTrace final : public TraceText {
 public:
  explicit ChromeTrace(TraceRecords records) : records_(std::move(records)) {}

  std::string next() override {
    part_.clear();
    switch (stage_) {
      case Stage::begin:
        find_places();
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
        stage_ = Stage::over;
        break;
      case Stage::over:
        break;
    }
    return part_;
  }

 private:
  enum class Stage : std::uint8_t { begin, requests, executions, over };
  using GpuletKey = std::tuple<std::string, std::uint32_t, std::uint64_t>;
  struct Place {
    int process = kFrontend;
    int track = 0;
  };
  struct Execution {
    Place place;
    Time from;
    Time to;
    std::uint32_t size = 0;
  };
  struct Track {
    int number = 0;
    std::string name;  // quoted
  };

  static GpuletKey gpulet_of(const RequestTraceRecord& record) {
    return {record.node, record.device, record.trace.gpulet.value};
  }

  // Numbers them in the order of their names, so that one run's documents look alike.
  void find_places() {
    std::map<GpuletKey, std::string> gpulets;
    std::set<std::string> models;
    for (const TraceChunk& chunk : records_) {
      for (const RequestTraceRecord& record : *chunk) {
        all_.push_back(&record);
        start_ = std::min(start_, record.trace.arrived);
        models.insert(record.model);
        if (!was_served(record)) continue;
        gpulets.emplace(gpulet_of(record), record.node + "/" + std::to_string(record.device) +
                                               " gpulet " +
                                               std::to_string(record.trace.gpulet.value) + ", " +
                                               std::to_string(record.share.percent) + " %");
      }
    }
    process_names_[kFrontend] = "frontend";
    int process = kFrontend;
    for (const auto& [gpulet, name] : gpulets) {
      processes_[gpulet] = ++process;
      process_names_[process] = name;
    }
    int track = 0;
    for (const std::string& model : models) tracks_[model] = {++track, in_quotes(model)};
    for (const RequestTraceRecord* record : all_) {
      const Place place = place_of(*record);
      track_names_.try_emplace({place.process, place.track}, record->model);
    }
  }

  Place place_of(const RequestTraceRecord& record) const {
    const int track = tracks_.at(record.model).number;
    return {was_served(record) ? processes_.at(gpulet_of(record)) : kFrontend, track};
  }

  std::string microseconds(Time time) const {
    return text_of(std::chrono::duration<double, std::micro>(time - start_).count());
  }

  void write_names() {
    part_ += R"({"displayTimeUnit":"ms","traceEvents":[)";
    for (const auto& [place, name] : process_names_) write_name(place, 0, "process_name", name);
    for (const auto& [track, name] : track_names_)
      write_name(track.first, track.second, "thread_name", name);
  }

  // Begins an event; the caller ends it.
  void begin_event(const char* phase, Place place) {
    part_ += first_ ? "\n" : ",\n";
    first_ = false;
    part_ += R"({"ph":")";
    part_ += phase;
    part_ +=
        R"(","pid":)" + std::to_string(place.process) + R"(,"tid":)" + std::to_string(place.track);
  }

  void write_name(int process, int track, const char* what, const std::string& name) {
    begin_event("M", {process, track});
    part_ += R"(,"name":")";
    part_ += what;
    part_ += R"(","args":{"name":)" + in_quotes(name) + "}}";
  }

  // One end of a span of the request; `name` is quoted. The caller closes the brace.
  void begin_edge(const char* phase, const RequestTraceRecord& record, Place place,
                  std::string_view name, Time time) {
    begin_event(phase, place);
    part_ += record.application ? R"(,"cat":"application","name":)" : R"(,"cat":"request","name":)";
    part_ += name;
    part_ += R"(,"id":")" + std::to_string(record.id.value) + R"(","ts":)" + microseconds(time);
  }

  void write_span(const RequestTraceRecord& record, Place place, std::string_view name, Time from,
                  Time to) {
    begin_edge("b", record, place, name, from);
    part_ += '}';
    begin_edge("e", record, place, name, to);
    part_ += '}';
  }

  void write_request(const RequestTraceRecord& record) {
    const RequestTrace& trace = record.trace;
    const RequestStages stages = stages_of(trace);
    const Time end = trace.arrived + stages.all();
    const Place place = place_of(record);
    const std::string& name = tracks_.at(record.model).name;
    begin_edge("b", record, place, name, trace.arrived);
    part_ += R"(,"args":{"request":)" + std::to_string(record.id.value) + R"(,"client":)" +
             std::to_string(record.client.value) + R"(,"tag":)" + std::to_string(record.tag) +
             R"(,"outcome":")" + std::string(to_string(record.outcome)) + R"(","late":)" +
             (record.late() ? "true" : "false") + R"(,"due_ms":)" +
             text_of(to_ms(record.due - trace.arrived)) + R"(,"batch_size":)" +
             std::to_string(trace.batch_size) + "}}";
    if (was_served(record)) {
      const Time sent = trace.arrived + stages.queue;
      const Time there = sent + stages.transfer;
      const Time started = there + stages.wait;
      const Time executed = started + stages.execution;
      write_span(record, place, R"("queue")", trace.arrived, sent);
      begin_edge("b", record, place, R"("batch")", sent);
      part_ += R"(,"args":{"batch":)" + std::to_string(trace.batch.value) + R"(,"size":)" +
               std::to_string(trace.batch_size) + "}}";
      write_span(record, place, R"("transfer")", sent, there);
      write_span(record, place, R"("wait")", there, started);
      write_span(record, place, R"("execution")", started, executed);
      write_span(record, place, R"("answer")", executed, end);
      begin_edge("e", record, place, R"("batch")", end);
      part_ += '}';
      executions_[trace.batch] = {place, started, executed, trace.batch_size};
    }
    begin_edge("e", record, place, name, end);
    part_ += '}';
  }

  void order_executions() {
    ordered_.assign(executions_.begin(), executions_.end());
    executions_.clear();
    std::stable_sort(ordered_.begin(), ordered_.end(),
                     [](const auto& a, const auto& b) { return a.second.from < b.second.from; });
    next_ = 0;
  }

  // Where their starts are known only to half a transfer they may seem to overlap, which slices of
  // one track must not.
  void write_execution(BatchId batch, const Execution& execution) {
    Time& end = ends_[{execution.place.process, execution.place.track}];
    const Time from = std::max(execution.from, end);
    end = std::max(from, execution.to);
    begin_event("X", execution.place);
    part_ += R"(,"cat":"execution","name":"execution of )" + std::to_string(execution.size) +
             R"(","ts":)" + microseconds(from) + R"(,"dur":)" +
             text_of(std::chrono::duration<double, std::micro>(end - from).count()) +
             R"(,"args":{"batch":)" + std::to_string(batch.value) + R"(,"size":)" +
             std::to_string(execution.size) + "}}";
  }

  const TraceRecords records_;
  std::vector<const RequestTraceRecord*> all_;
  Stage stage_ = Stage::begin;
  std::size_t next_ = 0;  // request, then execution, to write
  bool first_ = true;     // no event is written yet
  std::string part_;
  Time start_ = kNever;
  std::map<GpuletKey, int> processes_;
  std::map<std::string, Track> tracks_;  // by model, the same in every process
  std::map<int, std::string> process_names_;
  std::map<std::pair<int, int>, std::string> track_names_;
  std::map<BatchId, Execution> executions_;
  std::vector<std::pair<BatchId, Execution>> ordered_;
  std::map<std::pair<int, int>, Time> ends_;  // of what is written of each track
};

}  // namespace

std::unique_ptr<TraceText> chrome_trace(TraceRecords records) {
  return std::make_unique<ChromeTrace>(std::move(records));
}

}  // namespace gpulet::observe
