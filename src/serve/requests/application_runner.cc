#include "serve/requests/application_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace gpulet::serve {
namespace {

using config::ApplicationNode;
using config::ModelCall;
using config::TensorSource;

// The inputs of a model one after another. A single tensor is not copied.
Bytes concatenated(const std::vector<Tensor>& tensors) {
  if (tensors.size() == 1) return tensors.front().bytes;
  std::vector<std::byte> bytes;
  for (const Tensor& tensor : tensors)
    bytes.insert(bytes.end(), tensor.bytes.view().begin(), tensor.bytes.view().end());
  return Bytes::own(std::move(bytes));
}

// The stage's part of the remaining time: its budget by the time planned for the rest.
Time stage_deadline(const Application& application, std::size_t node, Time now, Time deadline) {
  const StageBudget& stage = application.split.stages[node];
  const double planned = application.graph.slo_ms - to_ms(stage.start);
  const double part = planned > 0 ? std::min(1.0, to_ms(stage.budget) / planned) : 1.0;
  return now + from_ms(to_ms(deadline - now) * part);
}

std::string describe(const ApplicationNode& node) {
  const auto* call = std::get_if<ModelCall>(&node.work);
  return call == nullptr ? "node " + node.name
                         : fmt::format("node {} (model {})", node.name, call->model);
}

}  // namespace

// ---- the applications

void ApplicationRunner::replace(const ApplicationList& applications, Time now) {
  ++revision_;
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

std::shared_ptr<const Application> ApplicationRunner::find(std::string_view name) const {
  const auto found = served_.find(name);
  return found == served_.end() ? nullptr : found->second.application;
}

std::vector<std::shared_ptr<const Application>> ApplicationRunner::all() const {
  std::vector<std::shared_ptr<const Application>> applications;
  for (const auto& [name, served] : served_) {
    if (served.application != nullptr) applications.push_back(served.application);
  }
  return applications;
}

ApplicationRunner::Row ApplicationRunner::row_of(const Served& served, Time now) {
  return {served.application,         served.rate.rate(), served.runs,    served.counters,
          served.latency.recent(now), served.statistics,  served.outcomes};
}

std::vector<ApplicationRunner::Row> ApplicationRunner::rows(Time now, const std::string& after,
                                                            std::size_t most) const {
  std::vector<Row> rows;
  for (auto one = served_.upper_bound(after); one != served_.end() && rows.size() < most; ++one) {
    if (one->second.application != nullptr) rows.push_back(row_of(one->second, now));
  }
  return rows;
}

std::optional<ApplicationRunner::Row> ApplicationRunner::row(const std::string& name,
                                                             Time now) const {
  const auto found = served_.find(name);
  if (found == served_.end() || found->second.application == nullptr) return std::nullopt;
  return row_of(found->second, now);
}

void ApplicationRunner::tick(Time now) {
  for (auto& [name, served] : served_) served.rate.tick(now);
}

// ---- runs

void ApplicationRunner::count(Served& served, const Status& failure, Duration after, Time now) {
  const bool dropped = is_drop(failure.code());
  ++(dropped ? served.counters.dropped : served.counters.failed);
  served.outcomes.add_failure(dropped, now);
  served.statistics.add_failure(failure.code(), after);
}

observe::RequestTraceRecord ApplicationRunner::record_of(const Run& run, StatusCode outcome,
                                                         Time now) {
  observe::RequestTraceRecord record;
  record.id = run.request.id;
  record.model = run.application->graph.name;
  record.application = true;
  record.client = run.request.client;
  record.tag = run.request.tag;
  record.trace.arrived = run.arrived;
  record.trace.answered = now;
  record.trace.batch_size = run.largest_batch;
  record.due = run.request.late_after;
  record.outcome = outcome;
  return record;
}

void ApplicationRunner::reply_with(Status failure, const Run& run, Served& served, Time now,
                                   ApplicationOutput& out) {
  count(served, failure, now - run.arrived, now);
  observe::RequestTraceRecord record = record_of(run, failure.code(), now);
  InferReply reply;
  reply.tag = run.request.tag;
  reply.status = std::move(failure);
  out.answers.push_back({run.request.client, std::move(reply), std::move(record)});
}

void ApplicationRunner::refuse(const std::string& name, Request request, Status status, Time now,
                               ApplicationOutput& out) {
  Served& served = served_.find(name)->second;
  ++served.counters.offered;
  reply_with(std::move(status), {served.application, std::move(request), now}, served, now, out);
}

void ApplicationRunner::start(const std::string& name, Request request, Time now,
                              ApplicationOutput& out) {
  Served& served = served_.find(name)->second;
  served.rate.arrived(1);
  if (served.runs >= max_runs_) {
    Status full(StatusCode::overloaded,
                fmt::format("application {} has {} requests in progress, which is its limit; send "
                            "fewer at a time",
                            name, max_runs_));
    return refuse(name, std::move(request), std::move(full), now, out);
  }
  ++served.counters.offered;
  ++served.runs;
  const std::uint64_t id = next_id_++;
  Run& run = runs_[id] = {served.application, std::move(request), now};
  deadlines_.add(run.request.answer_by, id);
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

Tensor ApplicationRunner::read(Run& run, const TensorSource& source) const {
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
              run.request.payload.slice(offset, front.input_sizes[source.tensor])};
    if (--run.request_readers == 0) run.request.payload = {};
  }
  return source.item ? item(tensor, *source.item) : tensor;
}

void ApplicationRunner::begin(std::uint64_t run_id, Run& run, std::size_t node, Time now,
                              ApplicationOutput& out) {
  const ApplicationNode& what = run.application->graph.nodes[node];
  std::vector<Tensor> inputs;
  for (const TensorSource& source : what.inputs) inputs.push_back(read(run, source));
  const std::uint64_t id = next_id_++;
  in_flight_.emplace(id, NodeRef{run_id, node});
  run.calls.push_back(id);
  if (const auto* call = std::get_if<ModelCall>(&what.work)) {
    out.calls.push_back({id, call->model,
                         stage_deadline(*run.application, node, now, run.request.deadline),
                         concatenated(inputs), run.request.priority});
  } else {
    out.steps.push_back({id, std::get<config::Step>(what.work), std::move(inputs)});
  }
}

bool ApplicationRunner::take(std::uint64_t id, NodeRef& node) {
  const auto found = in_flight_.find(id);
  if (found == in_flight_.end()) return false;
  node = found->second;
  in_flight_.erase(found);
  std::erase(runs_.at(node.run).calls, id);
  return true;
}

void ApplicationRunner::answered(std::uint64_t id, CallResult result, Time now,
                                 ApplicationOutput& out) {
  NodeRef node;
  if (!take(id, node)) return;
  if (!result.status.ok()) return fail(node, result.status, now, out);
  Run& run = runs_.at(node.run);
  run.largest_batch = std::max(run.largest_batch, result.batch_size);
  const std::vector<TensorSpec>& specs = run.application->graph.nodes[node.node].outputs;
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < std::min(specs.size(), result.outputs.size()); ++i) {
    // The steps after it read the bytes by the graph, which the model may not match any more.
    const Result<std::size_t> size = byte_size(specs[i]);
    if (!size.ok() || result.outputs[i].size() != size.value()) {
      return fail(node,
                  {StatusCode::internal,
                   fmt::format("output {} has {} bytes, and is declared as {}", specs[i].name,
                               result.outputs[i].size(), to_string(specs[i]))},
                  now, out);
    }
    outputs.push_back({specs[i], std::move(result.outputs[i])});
  }
  complete(node, std::move(outputs), result.executed, now, out);
}

void ApplicationRunner::step_done(std::uint64_t id, Result<std::vector<Tensor>> outputs, Time now,
                                  ApplicationOutput& out) {
  NodeRef node;
  if (!take(id, node)) return;
  if (!outputs.ok()) return fail(node, outputs.status(), now, out);
  complete(node, std::move(outputs).value(), {}, now, out);
}

void ApplicationRunner::complete(const NodeRef& node, std::vector<Tensor> outputs,
                                 Duration executed, Time now, ApplicationOutput& out) {
  Run& run = runs_.at(node.run);
  NodeState& state = run.nodes[node.node];
  const std::vector<ApplicationNode>& nodes = run.application->graph.nodes;
  if (outputs.size() != nodes[node.node].outputs.size()) {
    fail(node,
         {StatusCode::internal, "the node returned " + std::to_string(outputs.size()) + " outputs"},
         now, out);
    return;
  }
  state.outputs = std::move(outputs);
  state.executed += executed;
  if (--run.left == 0) return succeed(node.run, now, out);
  // `missing` counts edges, of which a node may have several to the same successor.
  for (std::size_t i = node.node + 1; i < nodes.size(); ++i) {
    const auto edges = static_cast<std::size_t>(
        std::count_if(nodes[i].inputs.begin(), nodes[i].inputs.end(),
                      [&](const TensorSource& source) { return source.node == node.node; }));
    if (edges == 0) continue;
    NodeState& next = run.nodes[i];
    next.executed = std::max(next.executed, state.executed);
    next.missing -= edges;
    if (next.missing == 0) begin(node.run, run, i, now, out);
  }
}

void ApplicationRunner::succeed(std::uint64_t run_id, Time now, ApplicationOutput& out) {
  Run& run = runs_.at(run_id);
  if (run.request.answer_by < now) return answer_overdue(run_id, now, out);
  const config::ApplicationConfig& graph = run.application->graph;
  InferReply reply;
  reply.tag = run.request.tag;
  reply.outputs = graph.outputs;
  for (const NodeState& node : run.nodes) reply.executed = std::max(reply.executed, node.executed);
  reply.queued = std::max(Duration::zero(), now - run.arrived - reply.executed);
  reply.batch_size = run.largest_batch;
  for (const TensorSource& source : graph.answered)
    reply.payload.push_back(read(run, source).bytes);
  Served& served = served_.find(graph.name)->second;
  ++served.counters.served;
  const bool late = now > run.request.late_after;
  if (late) ++served.counters.late;
  served.outcomes.add_served(late, now);
  served.latency.record(now - run.arrived, now);
  served.statistics.add_success({now - run.arrived, reply.queued, {}, reply.executed, {}}, now);
  ++served.statistics.executions;
  observe::RequestTraceRecord record = record_of(run, StatusCode::ok, now);
  record.trace.executed = reply.executed;
  out.answers.push_back({run.request.client, std::move(reply), std::move(record)});
  end(run_id, out);
}

void ApplicationRunner::fail(const NodeRef& node, const Status& why, Time now,
                             ApplicationOutput& out) {
  const Run& run = runs_.at(node.run);
  const config::ApplicationConfig& graph = run.application->graph;
  reply_with(why.within("application " + graph.name + ", " + describe(graph.nodes[node.node])), run,
             served_.find(graph.name)->second, now, out);
  end(node.run, out);
}

void ApplicationRunner::answer_overdue(Time now, ApplicationOutput& out) {
  for (const std::uint64_t id : deadlines_.take_passed(now)) answer_overdue(id, now, out);
}

void ApplicationRunner::answer_overdue(std::uint64_t run_id, Time now, ApplicationOutput& out) {
  const Run& run = runs_.at(run_id);
  const config::ApplicationConfig& graph = run.application->graph;
  std::string where;
  for (const std::uint64_t id : run.calls) {
    where += (where.empty() ? "" : ", ") + describe(graph.nodes[in_flight_.at(id).node]);
  }
  Served& served = served_.find(graph.name)->second;
  ++served.counters.overdue;
  reply_with(
      {StatusCode::too_late, fmt::format("application {}: the deadline passed{}", graph.name,
                                         where.empty() ? where : " while it waited for " + where)},
      run, served, now, out);
  end(run_id, out);
}

void ApplicationRunner::end(std::uint64_t run_id, ApplicationOutput& out) {
  const auto found = runs_.find(run_id);
  const Run& run = found->second;
  deadlines_.remove(run.request.answer_by, run_id);
  const config::ApplicationConfig& graph = run.application->graph;
  for (const std::uint64_t id : run.calls) {
    const std::size_t node = in_flight_.at(id).node;
    in_flight_.erase(id);
    if (const auto* call = std::get_if<ModelCall>(&graph.nodes[node].work))
      out.cancelled.push_back({id, call->model});
  }
  const auto served = served_.find(graph.name);
  --served->second.runs;
  if (served->second.application == nullptr && served->second.runs == 0) served_.erase(served);
  runs_.erase(found);
}

void ApplicationRunner::client_gone(ClientId client, ApplicationOutput& out) {
  std::vector<std::uint64_t> ended;
  for (const auto& [id, run] : runs_) {
    if (run.request.client == client) ended.push_back(id);
  }
  for (const std::uint64_t id : ended) {
    Served& served = served_.find(runs_.at(id).application->graph.name)->second;
    ++served.counters.failed;
    served.statistics.add_cancelled(1);
    end(id, out);
  }
}

}  // namespace gpulet::serve
