#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "gpulet/proxy/proxy.h"
#include "gpulet/serve/messages.h"
#include "proxy/channel.h"
#include "proxy/command_reader.h"

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

serve::ProxyReady load(const serve::LoadModels& command, executor::Executor& executor) {
  serve::ProxyReady ready;
  for (const serve::LoadModel& model : command.models) {
    ready.status = executor.load({.name = model.name,
                                  .file = model.file,
                                  .inputs = model.inputs,
                                  .outputs = model.outputs,
                                  .max_batch = model.max_batch});
    if (!ready.status.ok()) break;
  }
  ready.memory_bytes = resident_bytes();
  return ready;
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

serve::BatchRan run_batch(const serve::RunBatch& batch, Clock::time_point arrived,
                          std::span<std::byte> memory, executor::Executor& executor) {
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
  ran.status = check_areas(batch, memory.size()).within(where);
  if (!ran.status.ok()) return ran;

  const Result<std::size_t> written =
      executor.run({.model = batch.model,
                    .count = batch.count,
                    .input = memory.subspan(batch.input_offset, batch.input_bytes),
                    .output = memory.subspan(batch.output_offset, batch.output_capacity),
                    .simulated_latency = batch.simulated_latency});
  ran.executed = Clock::now() - start;
  ran.status = written.status().within(where);
  if (written.ok()) ran.output_bytes = written.value();
  return ran;
}

}  // namespace

Status serve(int control_fd, std::span<std::byte> memory, executor::Executor& executor) {
  CommandReader reader(control_fd);
  for (;;) {
    Result<std::optional<TimedCommand>> next = reader.take();
    if (!next.ok()) return next.status();
    if (!next.value().has_value()) return {};
    const auto& [command, arrived] = *next.value();
    if (std::holds_alternative<serve::StopProxy>(command)) return {};

    serve::ProxyMessage answer;
    if (const auto* models = std::get_if<serve::LoadModels>(&command)) {
      answer = load(*models, executor);
    } else {
      answer = run_batch(std::get<serve::RunBatch>(command), arrived, memory, executor);
    }
    if (Status status = write_message(control_fd, answer); !status.ok()) return status;
  }
}

}  // namespace gpulet::proxy
