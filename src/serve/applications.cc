#include "gpulet/serve/applications.h"

#include <algorithm>
#include <utility>

namespace gpulet::serve {
namespace {

using config::ApplicationNode;
using config::ModelCall;
using config::TensorSource;

// The model's inputs one after another. One tensor alone is passed on where it lies.
Bytes joined(const std::vector<Tensor>& tensors) {
  if (tensors.size() == 1) return tensors.front().bytes;
  std::vector<std::byte> bytes;
  for (const Tensor& tensor : tensors)
    bytes.insert(bytes.end(), tensor.bytes.view().begin(), tensor.bytes.view().end());
  return Bytes::own(std::move(bytes));
}

// Of the time left, what belongs to the stage: its budget among all that was planned from its start
// to the end of the whole.
Time stage_deadline(const Application& application, std::size_t node, Time now, Time deadline) {
  const Stage& stage = application.split.stages[node];
  const double planned = application.graph.slo_ms - to_ms(stage.start);
  const double part = planned > 0 ? std::min(1.0, to_ms(stage.budget) / planned) : 1.0;
  return now + from_ms(to_ms(deadline - now) * part);
}

std::string described(const ApplicationNode& node) {
  const auto* call = std::get_if<ModelCall>(&node.work);
  return call == nullptr ? "node " + node.name
                         : "node " + node.name + " (model " + call->model + ")";
}

}  // namespace

// ---- what there is

void Applications::replace(const ApplicationList& applications, Time now) {
  for (auto& [name, served] : served_) served.application = nullptr;
  for (const auto& application : applications) {
    const auto [entry, is_new] = served_.try_emplace(application->front.name);
    entry->second.application = application;
    if (is_new) {
      entry->second.rate = RateMonitor(application->front.configured_rate, std::chrono::seconds(2));
      entry->second.rate.start(now);
    }
  }
  std::erase_if(served_, [](const auto& entry) {
    return entry.second.application == nullptr && entry.second.runs == 0;
  });
}

std::shared_ptr<const Application> Applications::find(std::string_view name) const {
  const auto found = served_.find(name);
  return found == served_.end() ? nullptr : found->second.application;
}

Applications::Row Applications::row_of(const Served& served, Time now) {
  return {served.application,         served.rate.rate(), served.runs,    served.counters,
          served.latency.recent(now), served.statistics,  served.outcomes};
}

std::vector<Applications::Row> Applications::rows(Time now, const std::string& after,
                                                  std::size_t most) const {
  std::vector<Row> rows;
  for (auto one = served_.upper_bound(after); one != served_.end() && rows.size() < most; ++one) {
    if (one->second.application != nullptr) rows.push_back(row_of(one->second, now));
  }
  return rows;
}

std::optional<Applications::Row> Applications::row(const std::string& name, Time now) const {
  const auto found = served_.find(name);
  if (found == served_.end() || found->second.application == nullptr) return std::nullopt;
  return row_of(found->second, now);
}

void Applications::tick(Time now) {
  for (auto& [name, served] : served_) served.rate.tick(now);
}

// ---- runs

void Applications::count(Served& served, const Status& failure, Duration after, Time now) {
  const bool dropped =
      failure.code() == StatusCode::too_late || failure.code() == StatusCode::overloaded;
  ++(dropped ? served.counters.dropped : served.counters.failed);
  served.outcomes.add_failure(dropped, now);
  served.statistics.add_failure(failure.code(), after);
}

Applications::Run Applications::run_of(std::shared_ptr<const Application> application,
                                       const Asked& asked, Time now) {
  Run run;
  run.application = std::move(application);
  run.id = asked.id;
  run.client = asked.client;
  run.tag = asked.tag;
  run.arrived = now;
  run.deadline = asked.deadline;
  run.late_after = asked.late_after;
  run.answer_by = asked.answer_by;
  run.place = asked.place;
  run.priority = asked.priority;
  return run;
}

observe::RequestTraceRecord Applications::record_of(const Run& run, StatusCode outcome, Time now) {
  observe::RequestTraceRecord record;
  record.id = run.id;
  record.model = run.application->graph.name;
  record.application = true;
  record.client = run.client;
  record.tag = run.tag;
  record.trace.arrived = run.arrived;
  record.trace.answered = now;
  record.trace.batch_size = run.largest_batch;
  record.due = run.late_after;
  record.outcome = outcome;
  return record;
}

void Applications::refuse(const std::string& name, const Asked& asked, Status status, Time now,
                          ApplicationOutput& out) {
  Served& served = served_.find(name)->second;
  ++served.counters.offered;
  count(served, status, {}, now);
  observe::RequestTraceRecord record =
      record_of(run_of(served.application, asked, now), status.code(), now);
  InferReply reply;
  reply.tag = asked.tag;
  reply.status = std::move(status);
  out.answers.push_back({asked.client, std::move(reply), std::move(record)});
}

void Applications::start(const std::string& name, Asked asked, Time now, ApplicationOutput& out) {
  Served& served = served_.find(name)->second;
  served.rate.arrived();
  if (served.runs >= max_runs_) {
    refuse(name, asked,
           {StatusCode::overloaded, "application " + name + " has " + std::to_string(max_runs_) +
                                        " requests under way, its limit; send fewer at a time"},
           now, out);
    return;
  }
  ++served.counters.offered;
  ++served.runs;
  const std::uint64_t id = next_id_++;
  Run& run = runs_[id] = run_of(served.application, asked, now);
  deadlines_.add(run.answer_by, id);
  run.request = std::move(asked.payload);
  run.request_readers = run.application->request_readers;
  const std::vector<ApplicationNode>& nodes = run.application->graph.nodes;
  run.left = nodes.size();
  run.nodes.resize(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    run.nodes[i].readers = run.application->readers[i];
    run.nodes[i].missing = static_cast<std::size_t>(
        std::count_if(nodes[i].inputs.begin(), nodes[i].inputs.end(),
                      [](const TensorSource& source) { return source.node.has_value(); }));
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (run.nodes[i].missing == 0) begin(id, run, i, now, out);
  }
}

Tensor Applications::read(Run& run, const TensorSource& source) const {
  Tensor tensor;
  if (source.node) {
    NodeState& from = run.nodes[*source.node];
    tensor = from.outputs[source.tensor];
    if (--from.readers == 0) from.outputs.clear();
  } else {
    const ServedModel& front = run.application->front;
    std::size_t offset = 0;
    for (std::size_t i = 0; i < source.tensor; ++i) offset += front.input_sizes[i];
    tensor = {front.inputs[source.tensor],
              run.request.slice(offset, front.input_sizes[source.tensor])};
    if (--run.request_readers == 0) run.request = {};
  }
  return source.item ? item(tensor, *source.item) : tensor;
}

void Applications::begin(std::uint64_t run_id, Run& run, std::size_t node, Time now,
                         ApplicationOutput& out) {
  const ApplicationNode& what = run.application->graph.nodes[node];
  std::vector<Tensor> inputs;
  for (const TensorSource& source : what.inputs) inputs.push_back(read(run, source));
  const std::uint64_t id = next_id_++;
  under_way_.emplace(id, Place{run_id, node});
  run.calls.push_back(id);
  if (const auto* call = std::get_if<ModelCall>(&what.work)) {
    out.calls.push_back({id, call->model, stage_deadline(*run.application, node, now, run.deadline),
                         joined(inputs), run.priority});
  } else {
    out.steps.push_back({id, std::get<config::Step>(what.work), std::move(inputs)});
  }
}

bool Applications::take(std::uint64_t id, Place& place) {
  const auto found = under_way_.find(id);
  if (found == under_way_.end()) return false;
  place = found->second;
  under_way_.erase(found);
  std::erase(runs_.at(place.run).calls, id);
  return true;
}

void Applications::answered(std::uint64_t id, Called called, Time now, ApplicationOutput& out) {
  Place place;
  if (!take(id, place)) return;
  if (!called.status.ok()) return fail(place, called.status, now, out);
  Run& run = runs_.at(place.run);
  run.largest_batch = std::max(run.largest_batch, called.batch_size);
  const std::vector<TensorSpec>& specs = run.application->graph.nodes[place.node].outputs;
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < std::min(specs.size(), called.outputs.size()); ++i)
    outputs.push_back({specs[i], std::move(called.outputs[i])});
  complete(place, std::move(outputs), called.executed, now, out);
}

void Applications::step_done(std::uint64_t id, Result<std::vector<Tensor>> outputs, Time now,
                             ApplicationOutput& out) {
  Place place;
  if (!take(id, place)) return;
  if (!outputs.ok()) return fail(place, outputs.status(), now, out);
  complete(place, std::move(outputs).value(), {}, now, out);
}

void Applications::complete(const Place& place, std::vector<Tensor> outputs, Duration executed,
                            Time now, ApplicationOutput& out) {
  Run& run = runs_.at(place.run);
  NodeState& state = run.nodes[place.node];
  const std::vector<ApplicationNode>& nodes = run.application->graph.nodes;
  if (outputs.size() != nodes[place.node].outputs.size()) {
    fail(place, {StatusCode::internal, "it gave " + std::to_string(outputs.size()) + " outputs"},
         now, out);
    return;
  }
  state.outputs = std::move(outputs);
  state.executed += executed;
  if (--run.left == 0) return succeed(place.run, now, out);
  // Inputs are counted by edge, and so is what has come.
  for (std::size_t i = place.node + 1; i < nodes.size(); ++i) {
    const auto edges = static_cast<std::size_t>(
        std::count_if(nodes[i].inputs.begin(), nodes[i].inputs.end(),
                      [&](const TensorSource& source) { return source.node == place.node; }));
    if (edges == 0) continue;
    NodeState& next = run.nodes[i];
    next.executed = std::max(next.executed, state.executed);
    next.missing -= edges;
    if (next.missing == 0) begin(place.run, run, i, now, out);
  }
}

void Applications::succeed(std::uint64_t run_id, Time now, ApplicationOutput& out) {
  Run& run = runs_.at(run_id);
  if (run.answer_by < now) return answer_overdue(run_id, now, out);
  const config::ApplicationConfig& graph = run.application->graph;
  InferReply reply;
  reply.tag = run.tag;
  reply.outputs = graph.outputs;
  for (const NodeState& node : run.nodes) reply.executed = std::max(reply.executed, node.executed);
  reply.queued = std::max(Duration::zero(), now - run.arrived - reply.executed);
  reply.batch_size = run.largest_batch;
  for (const TensorSource& source : graph.answered)
    reply.payload.push_back(read(run, source).bytes);
  Served& served = served_.find(graph.name)->second;
  ++served.counters.served;
  const bool late = now > run.late_after;
  if (late) ++served.counters.late;
  served.outcomes.add_served(late, now);
  served.latency.record(now - run.arrived, now);
  served.statistics.add_success({now - run.arrived, reply.queued, {}, reply.executed, {}}, now);
  ++served.statistics.executions;
  observe::RequestTraceRecord record = record_of(run, StatusCode::ok, now);
  record.trace.executed = reply.executed;
  out.answers.push_back({run.client, std::move(reply), std::move(record)});
  end(run_id, out);
}

void Applications::fail(const Place& place, const Status& why, Time now, ApplicationOutput& out) {
  const Run& run = runs_.at(place.run);
  const config::ApplicationConfig& graph = run.application->graph;
  InferReply reply;
  reply.tag = run.tag;
  reply.status =
      why.within("application " + graph.name + ", " + described(graph.nodes[place.node]));
  count(served_.find(graph.name)->second, why, now - run.arrived, now);
  out.answers.push_back({run.client, std::move(reply), record_of(run, why.code(), now)});
  end(place.run, out);
}

void Applications::answer_overdue(Time now, ApplicationOutput& out) {
  for (const std::uint64_t id : deadlines_.take_passed(now)) answer_overdue(id, now, out);
}

void Applications::answer_overdue(std::uint64_t run_id, Time now, ApplicationOutput& out) {
  const Run& run = runs_.at(run_id);
  const config::ApplicationConfig& graph = run.application->graph;
  std::string where;
  for (const std::uint64_t id : run.calls) {
    where += (where.empty() ? "" : ", ") + described(graph.nodes[under_way_.at(id).node]);
  }
  InferReply reply;
  reply.tag = run.tag;
  reply.status = {StatusCode::too_late,
                  "application " + graph.name + ": the deadline passed" +
                      (where.empty() ? std::string() : " with " + where + " under way")};
  Served& served = served_.find(graph.name)->second;
  ++served.counters.overdue;
  count(served, reply.status, now - run.arrived, now);
  observe::RequestTraceRecord record = record_of(run, reply.status.code(), now);
  out.answers.push_back({run.client, std::move(reply), std::move(record)});
  end(run_id, out);
}

void Applications::end(std::uint64_t run_id, ApplicationOutput& out) {
  const auto found = runs_.find(run_id);
  const Run& run = found->second;
  deadlines_.remove(run.answer_by, run_id);
  const config::ApplicationConfig& graph = run.application->graph;
  for (const std::uint64_t id : run.calls) {
    const std::size_t node = under_way_.at(id).node;
    under_way_.erase(id);
    if (const auto* call = std::get_if<ModelCall>(&graph.nodes[node].work))
      out.withdrawn.push_back({id, call->model});
  }
  const auto served = served_.find(graph.name);
  --served->second.runs;
  if (served->second.application == nullptr && served->second.runs == 0) served_.erase(served);
  runs_.erase(found);
}

void Applications::client_gone(ClientId client, ApplicationOutput& out) {
  std::vector<std::uint64_t> gone;
  for (const auto& [id, run] : runs_) {
    if (run.client == client) gone.push_back(id);
  }
  for (const std::uint64_t id : gone) {
    Served& served = served_.find(runs_.at(id).application->graph.name)->second;
    ++served.counters.failed;
    served.statistics.add_cancelled(1);
    end(id, out);
  }
}

}  // namespace gpulet::serve
