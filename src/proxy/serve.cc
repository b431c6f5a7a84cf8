#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "gpulet/partition/driver.h"
#include "gpulet/proxy/proxy.h"
#include "gpulet/serve/messages.h"
#include "proxy/channel.h"
#include "proxy/command_reader.h"
#include "proxy/model_file.h"
#include "proxy/share_check.h"
#include "proxy/shared_memory.h"

namespace gpulet::proxy {
namespace {

using Clock = std::chrono::steady_clock;

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

// A gpulet's models and its memory, from LoadModels on.
class Loaded {
 public:
  Loaded(const Program& program, const ProxyOptions& options)
      : program_(program), options_(options) {}

  serve::ProxyReady load(const serve::LoadModels& command);
  serve::BatchRan run(const serve::RunBatch& batch, Clock::time_point arrived);

 private:
  Status prepare(const serve::LoadModels& command);
  Result<partition::FoundShare> find_share();
  Status load_models(const serve::LoadModels& command, serve::ProxyReady& ready);
  Result<std::uint32_t> load(const serve::LoadModel& model);

  const Program& program_;
  const ProxyOptions& options_;
  std::optional<SharedMemory> memory_;
  std::unique_ptr<executor::Executor> executor_;
};

Status Loaded::prepare(const serve::LoadModels& command) {
  if (executor_ != nullptr) return {StatusCode::invalid, "this proxy is a gpulet's already"};
  Result<SharedMemory> memory = SharedMemory::map(options_.memory_fd, command.memory_bytes);
  if (!memory.ok()) return memory.status();
  // The only other thread, the command reader, looks at no variable.
  for (const auto& [name, value] : command.environment) {
    ::setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  memory_.emplace(std::move(memory).value());
  executor_ = program_.make_executor();
  return {};
}

// What the device gave this process, where that is what it was to have.
Result<partition::FoundShare> Loaded::find_share() {
  const auto expected = parse_expected_share(
      ::getenv(partition::kExpectedShareVariable),  // NOLINT(concurrency-mt-unsafe)
      ::getenv(partition::kDeviceSmsVariable));     // NOLINT(concurrency-mt-unsafe)
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
                               .form = model.form};
  if (options_.files_fd < 0 || model.file.empty()) return executor_->load(wanted);
  const Result<ModelFile> given = ModelFile::receive(options_.files_fd);
  if (!given.ok()) return given.status().within("model '" + model.name + "': " + model.file);
  wanted.file = given.value().path();
  const Result<std::uint32_t> form = executor_->load(wanted);
  if (form.ok()) return form;
  return Status(form.status().code(),
                replaced(form.status().message(), wanted.file.string(), model.file));
}

Status Loaded::load_models(const serve::LoadModels& command, serve::ProxyReady& ready) {
  auto found = find_share();
  if (!found.ok()) return found.status();
  ready.found = found.value();
  for (const serve::LoadModel& model : command.models) {
    const Result<std::uint32_t> form = load(model);
    if (!form.ok()) return form.status();
    ready.forms.push_back(form.value());
  }
  return {};
}

serve::ProxyReady Loaded::load(const serve::LoadModels& command) {
  serve::ProxyReady ready;
  ready.status = prepare(command);
  if (ready.status.ok()) {
    ready.status = load_models(command, ready);
    if (!ready.status.ok()) ready.device = executor_->health();
  }
  ready.memory_bytes = resident_bytes();
  return ready;
}

serve::BatchRan Loaded::run(const serve::RunBatch& batch, Clock::time_point arrived) {
  const Clock::time_point start = Clock::now();
  serve::BatchRan ran;
  ran.id = batch.id;
  ran.queued = start - arrived;
  const std::string where = "batch " + std::to_string(batch.id.value);
  if (ran.queued > batch.start_within) {
    ran.status = {StatusCode::too_late, where + ": had to start within " +
                                            std::to_string(to_ms(batch.start_within)) +
                                            " ms, but waited " + std::to_string(to_ms(ran.queued)) +
                                            " ms for the batches before it"};
    return ran;
  }
  if (executor_ == nullptr) {
    ran.status = {StatusCode::not_found, where + ": no models were loaded yet"};
    return ran;
  }
  const std::span<std::byte> memory = memory_->bytes();
  ran.status = check_areas(batch, memory.size()).within(where);
  if (!ran.status.ok()) return ran;

  const Result<std::size_t> written =
      executor_->run({.model = batch.model,
                      .count = batch.count,
                      .input = memory.subspan(batch.input_offset, batch.input_bytes),
                      .output = memory.subspan(batch.output_offset, batch.output_capacity),
                      .simulated_latency = batch.simulated_latency});
  ran.executed = Clock::now() - start;
  ran.status = written.status().within(where);
  if (written.ok()) {
    ran.output_bytes = written.value();
  } else {
    ran.device = executor_->health();
  }
  return ran;
}

}  // namespace

Status serve(const ProxyOptions& options, const Program& program) {
  if (program.prepare != nullptr) program.prepare();
  // Not earlier: nothing that is timed comes before LoadModels.
  CommandReader reader(options.control_fd);
  Loaded loaded(program, options);
  // A peer that is gone by now shows in what it sent, or did not send.
  static_cast<void>(write_message(options.control_fd, serve::ProxyIdle{}));
  for (;;) {
    Result<std::optional<TimedCommand>> next = reader.take();
    if (!next.ok()) return next.status();
    if (!next.value().has_value()) return {};
    const auto& [command, arrived] = *next.value();
    if (std::holds_alternative<serve::StopProxy>(command)) return {};

    serve::ProxyMessage answer;
    if (const auto* models = std::get_if<serve::LoadModels>(&command)) {
      answer = loaded.load(*models);
    } else {
      answer = loaded.run(std::get<serve::RunBatch>(command), arrived);
    }
    if (Status status = write_message(options.control_fd, answer); !status.ok()) return status;
  }
}

}  // namespace gpulet::proxy
