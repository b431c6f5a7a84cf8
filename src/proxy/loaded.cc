#include "proxy/loaded.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "gpulet/partition/driver.h"
#include "proxy/model_file.h"
#include "proxy/share_check.h"

namespace gpulet::proxy {
namespace {

// What this process holds in memory now, as the kernel counts it; 0 where it does not say.
std::uint64_t resident_bytes() {
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> total_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

Status check_area(const char* name, std::uint64_t offset, std::uint64_t bytes, std::size_t memory) {
  if (offset <= memory && bytes <= memory - offset) return {};
  return {StatusCode::invalid, std::string(name) + " of " + std::to_string(bytes) +
                                   " bytes at offset " + std::to_string(offset) +
                                   " does not lie in the shared memory of " +
                                   std::to_string(memory) + " bytes"};
}

Status check_areas(const serve::RunBatch& batch, std::size_t memory) {
  if (Status status = check_area("input", batch.input_offset, batch.input_bytes, memory);
      !status.ok())
    return status;
  if (Status status = check_area("output", batch.output_offset, batch.output_capacity, memory);
      !status.ok()) {
    return status;
  }
  if (batch.input_offset < batch.output_offset + batch.output_capacity &&
      batch.output_offset < batch.input_offset + batch.input_bytes && batch.input_bytes > 0 &&
      batch.output_capacity > 0) {
    return {StatusCode::invalid, "input at offset " + std::to_string(batch.input_offset) +
                                     " overlaps the output at offset " +
                                     std::to_string(batch.output_offset) +
                                     "; give each an area of its own"};
  }
  return {};
}

// People know the file by its name.
std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

// Of a model that computes in other numbers than its file.
void tell_error(const std::string& model, double error) {
  constexpr double kPercent = 100;
  if (error <= 0) return;
  std::fprintf(
      stderr,
      "gpulet-proxy[%d]: model '%s' differs from its file by up to %.3g %% of its outputs' "
      "largest magnitude, on a sample\n",
      static_cast<int>(::getpid()), model.c_str(), kPercent * error);
}

std::string name_of(BatchId batch) { return "batch " + std::to_string(batch.value); }

// Of Executor::load's failures.
FailureCause cause_of_loading(StatusCode code) {
  switch (code) {
    case StatusCode::invalid:
      return FailureCause::model_file;
    case StatusCode::not_found:
      return FailureCause::node_store;
    case StatusCode::overloaded:
      return FailureCause::node_memory;
    case StatusCode::unavailable:
      return FailureCause::device;
    default:
      return FailureCause::unknown;
  }
}

// Null where the gpulet was given none of that name.
const char* variable_of(const serve::LoadModels& command, const char* name) {
  const auto found = command.environment.find(name);
  return found == command.environment.end() ? nullptr : found->second.c_str();
}

}  // namespace

Loaded::Loaded(const ProxyOptions& options, MakeExecutor make_executor,
               std::function<bool()> peer_is_gone)
    : options_(options),
      make_executor_(std::move(make_executor)),
      peer_is_gone_(std::move(peer_is_gone)) {}

Status Loaded::prepare(const serve::LoadModels& command, FailureCause& cause) {
  if (executor_ != nullptr) return {StatusCode::invalid, "this proxy is a gpulet's already"};
  Result<SharedMemory> memory = SharedMemory::map(options_.memory_fd, command.memory_bytes);
  if (!memory.ok()) {
    cause = FailureCause::node_memory;
    return memory.status();
  }
  auto made = make_executor_(command);
  if (!made.ok()) {
    cause = FailureCause::device;
    return made.status();
  }
  memory_.emplace(std::move(memory).value());
  executor_ = std::move(made).value();
  executor_->use_memory(memory_->bytes());
  return {};
}

// What the device gave this gpulet, where that is what it was to have.
Result<partition::FoundShare> Loaded::find_share(const serve::LoadModels& command) {
  const auto expected =
      parse_expected_share(variable_of(command, partition::kExpectedShareVariable),
                           variable_of(command, partition::kDeviceSmsVariable));
  if (!expected.ok()) return expected.status();
  auto found = executor_->found_share();
  if (!found.ok()) return found;
  return check_share(expected.value(), found.value());
}

Result<std::uint32_t> Loaded::load(const serve::LoadModel& model) {
  executor::ModelToLoad wanted{.name = model.name,
                               .file = model.file,
                               .inputs = model.inputs,
                               .outputs = model.outputs,
                               .max_batch = model.max_batch,
                               .form = model.form,
                               .numerics = model.numerics};
  if (options_.files_fd < 0 || model.file.empty()) return executor_->load(wanted);
  const Result<ModelFile> given = ModelFile::receive(options_.files_fd);
  if (!given.ok()) {
    return Status(StatusCode::malformed, given.status().message())
        .within("model '" + model.name + "': " + model.file);
  }
  wanted.file = given.value().path();
  Result<std::uint32_t> form = executor_->load(wanted);
  if (form.ok()) return form;
  return Status(form.status().code(),
                replaced(form.status().message(), wanted.file.string(), model.file));
}

Status Loaded::load_models(const serve::LoadModels& command, serve::ProxyReady& ready) {
  auto found = find_share(command);
  if (!found.ok()) {
    ready.cause = FailureCause::device;
    return found.status();
  }
  ready.found = found.value();
  for (const serve::LoadModel& model : command.models) {
    if (peer_is_gone_()) return {StatusCode::cancelled, "nobody waits for these models any more"};
    const Result<std::uint32_t> form = load(model);
    if (!form.ok()) {
      ready.cause = cause_of_loading(form.status().code());
      ready.failed_model = model.name;
      return form.status();
    }
    tell_error(model.name, executor_->error_of(form.value()));
    ready.forms.push_back(form.value());
  }
  return {};
}

serve::ProxyReady Loaded::load(const serve::LoadModels& command) {
  serve::ProxyReady ready;
  ready.status = prepare(command, ready.cause);
  if (ready.status.ok()) {
    ready.status = load_models(command, ready);
    if (!ready.status.ok()) ready.device = executor_->health();
  }
  ready.memory_bytes = resident_bytes();
  return ready;
}

std::size_t Loaded::depth() const { return executor_ == nullptr ? 1 : executor_->depth(); }

// What the executor is to do, where the batch may still begin.
Result<executor::BatchToRun> Loaded::check(const serve::RunBatch& batch, Duration waited) const {
  if (waited > batch.start_within) {
    return Status(StatusCode::too_late, "had to start within " +
                                            std::to_string(to_ms(batch.start_within)) +
                                            " ms, but waited " + std::to_string(to_ms(waited)) +
                                            " ms for the batches before it");
  }
  if (executor_ == nullptr) return Status(StatusCode::not_found, "no models were loaded yet");
  const std::span<std::byte> memory = memory_->bytes();
  if (Status status = check_areas(batch, memory.size()); !status.ok()) return status;
  return executor::BatchToRun{.model = batch.model,
                              .count = batch.count,
                              .input = memory.subspan(batch.input_offset, batch.input_bytes),
                              .output = memory.subspan(batch.output_offset, batch.output_capacity),
                              .simulated_latency = batch.simulated_latency};
}

serve::BatchRan Loaded::run(const serve::RunBatch& batch, Clock::time_point arrived) {
  const Clock::time_point start = Clock::now();
  serve::BatchRan ran;
  ran.id = batch.id;
  ran.queued = start - arrived;
  const auto wanted = check(batch, ran.queued);
  if (!wanted.ok()) {
    ran.status = wanted.status().within(name_of(batch.id));
    return ran;
  }
  const Result<std::size_t> written = executor_->run(wanted.value());
  ran.executed = Clock::now() - start;
  if (written.ok()) {
    ran.output_bytes = written.value();
  } else {
    fail(ran, written.status());
  }
  return ran;
}

// A message about the input is for the client, who knows of no batches.
void Loaded::fail(serve::BatchRan& ran, const Status& why) const {
  if (why.code() == StatusCode::invalid) {
    ran.cause = FailureCause::input;
    ran.status = why;
  } else {
    ran.status = why.within(name_of(ran.id));
    ran.device = executor_->health();
  }
}

BegunBatch Loaded::begin(const serve::RunBatch& batch, Clock::time_point arrived) {
  BegunBatch begun;
  begun.arrived = arrived;
  begun.begun = Clock::now();
  begun.ran.id = batch.id;
  begun.ran.queued = begun.begun - arrived;
  const auto wanted = check(batch, begun.ran.queued);
  if (!wanted.ok()) {
    begun.ran.status = wanted.status().within(name_of(batch.id));
    return begun;
  }
  auto running = executor_->begin(wanted.value());
  if (running.ok()) {
    begun.running = std::move(running).value();
  } else {
    fail(begun.ran, running.status());
  }
  return begun;
}

}  // namespace gpulet::proxy
