// The trace event format. Requests overlap, so each is an asynchronous event with its stages
// inside; the executions of a gpulet do not, so they are plain slices.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "gpulet/observe/trace.h"

namespace gpulet::observe {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFrontend = 1;  // its process

bool was_served(const RequestTraceRecord& record) {
  return record.outcome == StatusCode::ok && !record.application && !record.node.empty();
}

class Document {
 public:
  explicit Document(std::span<const RequestTraceRecord> records) : records_(records) {
    for (const RequestTraceRecord& record : records)
      start_ = std::min(start_, record.trace.arrived);
    find_places();
  }

  std::string written() {
    for (const auto& [place, name] : process_names_) tell_name(place, 0, "process_name", name);
    for (const auto& [track, name] : track_names_)
      tell_name(track.first, track.second, "thread_name", name);
    for (const RequestTraceRecord& record : records_) tell_request(record);
    tell_executions();
    return R"({"displayTimeUnit":"ms","traceEvents":[)" + events_ + "\n]}\n";
  }

 private:
  struct Place {
    int process = kFrontend;
    int track = 0;
  };

  static std::tuple<std::string, std::uint32_t, std::uint64_t> gpulet_of(
      const RequestTraceRecord& record) {
    return {record.node, record.device, record.trace.gpulet.value};
  }

  // Numbers them in the order of their names, so that one run's documents look alike.
  void find_places() {
    std::map<std::tuple<std::string, std::uint32_t, std::uint64_t>, std::string> gpulets;
    std::set<std::string> models;
    for (const RequestTraceRecord& record : records_) {
      models.insert(record.model);
      if (!was_served(record)) continue;
      gpulets.emplace(gpulet_of(record), record.node + "/" + std::to_string(record.device) +
                                             " gpulet " +
                                             std::to_string(record.trace.gpulet.value) + ", " +
                                             std::to_string(record.share.percent) + " %");
    }
    process_names_[kFrontend] = "frontend";
    int next = kFrontend;
    for (const auto& [gpulet, name] : gpulets) {
      processes_[gpulet] = ++next;
      process_names_[next] = name;
    }
    int track = 0;
    for (const std::string& model : models) tracks_[model] = ++track;
    for (const RequestTraceRecord& record : records_) {
      const Place place = place_of(record);
      track_names_[{place.process, place.track}] = record.model;
    }
  }

  Place place_of(const RequestTraceRecord& record) const {
    const int track = tracks_.at(record.model);
    return {was_served(record) ? processes_.at(gpulet_of(record)) : kFrontend, track};
  }

  double microseconds(Time time) const {
    return std::chrono::duration<double, std::micro>(time - start_).count();
  }

  void tell(const Json& event) {
    events_ += events_.empty() ? "\n" : ",\n";
    events_ += event.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void tell_name(int process, int track, const char* what, const std::string& name) {
    tell({{"ph", "M"},
          {"pid", process},
          {"tid", track},
          {"name", what},
          {"args", {{"name", name}}}});
  }

  Json edge(const char* phase, const RequestTraceRecord& record, const std::string& name,
            Time time) const {
    const Place place = place_of(record);
    return {{"ph", phase},
            {"cat", record.application ? "application" : "request"},
            {"name", name},
            {"id", std::to_string(record.id.value)},
            {"pid", place.process},
            {"tid", place.track},
            {"ts", microseconds(time)}};
  }

  void tell_span(const RequestTraceRecord& record, const char* name, Time from, Time to) {
    tell(edge("b", record, name, from));
    tell(edge("e", record, name, to));
  }

  void tell_request(const RequestTraceRecord& record) {
    const RequestTrace& trace = record.trace;
    const RequestStages stages = stages_of(trace);
    const Time end = trace.arrived + stages.all();
    Json begin = edge("b", record, record.model, trace.arrived);
    begin["args"] = {{"request", record.id.value},
                     {"client", record.client.value},
                     {"tag", record.tag},
                     {"outcome", to_string(record.outcome)},
                     {"late", record.late()},
                     {"due_ms", to_ms(record.due - trace.arrived)},
                     {"batch_size", trace.batch_size}};
    tell(begin);
    if (was_served(record)) {
      const Time sent = trace.arrived + stages.queue;
      const Time there = sent + stages.transfer;
      const Time started = there + stages.wait;
      const Time executed = started + stages.execution;
      tell_span(record, "queue", trace.arrived, sent);
      Json batch = edge("b", record, "batch", sent);
      batch["args"] = {{"batch", trace.batch.value}, {"size", trace.batch_size}};
      tell(batch);
      tell_span(record, "transfer", sent, there);
      tell_span(record, "wait", there, started);
      tell_span(record, "execution", started, executed);
      tell_span(record, "answer", executed, end);
      tell(edge("e", record, "batch", end));
      executions_[trace.batch] = {place_of(record), started, executed, trace.batch_size};
    }
    tell(edge("e", record, record.model, end));
  }

  // Where their starts are known only to half a transfer they may seem to overlap, which slices of
  // one track must not.
  void tell_executions() {
    std::vector<std::pair<BatchId, Execution>> ordered(executions_.begin(), executions_.end());
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const auto& a, const auto& b) { return a.second.from < b.second.from; });
    std::map<std::pair<int, int>, Time> ends;
    for (const auto& [batch, execution] : ordered) {
      Time& end = ends[{execution.place.process, execution.place.track}];
      const Time from = std::max(execution.from, end);
      end = std::max(from, execution.to);
      tell({{"ph", "X"},
            {"cat", "execution"},
            {"name", "execution of " + std::to_string(execution.size)},
            {"pid", execution.place.process},
            {"tid", execution.place.track},
            {"ts", microseconds(from)},
            {"dur", microseconds(end) - microseconds(from)},
            {"args", {{"batch", batch.value}, {"size", execution.size}}}});
    }
  }

  struct Execution {
    Place place;
    Time from;
    Time to;
    std::uint32_t size = 0;
  };

  std::span<const RequestTraceRecord> records_;
  Time start_ = kNever;
  std::map<std::tuple<std::string, std::uint32_t, std::uint64_t>, int> processes_;  // by gpulet
  std::map<std::string, int> tracks_;  // by model, the same in every process
  std::map<int, std::string> process_names_;
  std::map<std::pair<int, int>, std::string> track_names_;
  std::map<BatchId, Execution> executions_;
  std::string events_;
};

}  // namespace

std::string chrome_trace(std::span<const RequestTraceRecord> records) {
  return Document(records).written();
}

}  // namespace gpulet::observe
