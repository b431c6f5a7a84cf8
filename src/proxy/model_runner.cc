#include "proxy/model_runner.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/partition/driver.h"
#include "proxy/channel.h"
#include "proxy/device.h"

namespace gpulet::proxy {

// ---- the share check

namespace {

// The SMs between two sizes that a GPU can give (Hopper).
constexpr std::uint32_t kCoarsestStep = 8;

Result<std::uint32_t> parse(const char* name, const char* text, std::uint32_t min,
                            std::uint32_t max) {
  const auto number = parse_number<std::uint32_t>(text);
  if (number && *number >= min && *number <= max) return *number;
  return Status(StatusCode::invalid,
                fmt::format("{} must be {}..{}; was '{}'", name, min, max, text));
}

}  // namespace

Result<ExpectedShare> parse_expected_share(const char* share, const char* device_sms) {
  constexpr std::uint32_t kMaxSms = 100'000;
  ExpectedShare expected;
  if (share != nullptr) {
    GPULET_TRY(const auto percent, parse(partition::kExpectedShareVariable, share, 1, 100));
    expected.share = Share{static_cast<int>(percent)};
  }
  if (device_sms != nullptr) {
    GPULET_TRY(const auto sms, parse(partition::kDeviceSmsVariable, device_sms, 1, kMaxSms));
    expected.device_sms = sms;
  }
  return expected;
}

Result<partition::FoundShare> check_share(const ExpectedShare& expected,
                                          partition::FoundShare found) {
  if (found.device_sms == 0) found.device_sms = expected.device_sms;
  if (!expected.share) return found;
  const auto does_not_serve = [&expected](const std::string& but) {
    return Status(StatusCode::unavailable,
                  fmt::format("this process does not serve: it expects {} % of its device, but {}",
                              expected.share->percent, but));
  };
  if (!found.held) {
    return does_not_serve(
        "nothing holds it to that share; check that it is a client of the device's MPS daemon");
  }
  const double max_sms = expected.share->fraction() * found.device_sms + kCoarsestStep;
  if (found.device_sms > 0 && found.sms > max_sms)
    return does_not_serve(fmt::format("was given {} of its {} SMs", found.sms, found.device_sms));
  return found;
}

// ---- running

void set_environment(const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment)
    ::setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
}

namespace {

Status unusable(const std::string& why) { return {StatusCode::invalid, "shared memory: " + why}; }

}  // namespace

Result<SharedMemory> SharedMemory::map(int fd, std::uint64_t bytes) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return unusable(std::generic_category().message(errno));
  // A page beyond the end of the file would cause a SIGBUS in the middle of a batch.
  if (static_cast<std::uint64_t>(file.st_size) < bytes)
    return unusable(fmt::format("the file has {} bytes; {} were announced", file.st_size, bytes));
  if (bytes == 0) return unusable("0 bytes were announced");
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED)
    return unusable("mmap failed: " + std::generic_category().message(errno));
  return SharedMemory({static_cast<std::byte*>(address), bytes});
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

namespace {

// The resident memory of this process; 0 if the kernel does not report it.
std::uint64_t resident_bytes() {
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> total_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

Status check_area(const char* name, std::uint64_t offset, std::uint64_t bytes, std::size_t memory) {
  if (offset <= memory && bytes <= memory - offset) return {};
  return {StatusCode::invalid,
          fmt::format("{} of {} bytes at offset {} is outside of the shared memory of {} bytes",
                      name, bytes, offset, memory)};
}

Status check_areas(const RunBatch& batch, std::size_t memory) {
  Status status = check_area("input", batch.input_offset, batch.input_bytes, memory);
  if (status.ok())
    status = check_area("output", batch.output_offset, batch.output_capacity, memory);
  if (!status.ok()) return status;
  if (batch.input_offset < batch.output_offset + batch.output_capacity &&
      batch.output_offset < batch.input_offset + batch.input_bytes && batch.input_bytes > 0 &&
      batch.output_capacity > 0) {
    return {
        StatusCode::invalid,
        fmt::format("input at offset {} overlaps the output at offset {}; they must be disjoint",
                    batch.input_offset, batch.output_offset)};
  }
  return {};
}

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// "model 'm': PATH: why" -> "model 'm': why". The path is that of a descriptor; the file's path at
// the backend is that of a copy in its store. Neither means anything to who reads the message.
std::string without_path(const std::string& text, const std::string& path) {
  return replace_all(replace_all(text, path + ": ", ""), path, "its file");
}

// Logs the error of a model that computes in other numerics than its file.
void log_error(const std::string& model, double error) {
  if (error <= 0) return;
  fmt::print(stderr,
             "gpulet-proxy[{}]: model '{}' differs from its file by up to {:.3g} % of its outputs' "
             "largest magnitude on a sample\n",
             ::getpid(), model, 100 * error);
}

// The next file that the backend sent. The file was sent before the command that names it.
Result<FileDescriptor> receive_model_file(int socket) {
  auto received = receive_descriptors(socket, 1, false);
  if (!received.ok()) return received.status().within("no file came with it");
  if (received.value().closed) return Status(StatusCode::malformed, "no file came with it");
  return std::move(received.value().descriptors.front());
}

std::string name_of(BatchId batch) { return fmt::format("batch {}", batch.value); }

// The cause of a failure of Executor::load.
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

// On CPU cores the share has no other core. Beside a GPU half of the machine's decode, at most 8.
std::size_t decoding_threads() {
  constexpr std::size_t kMost = 8;
  if (device() == "cpu") return 1;
  return std::clamp<std::size_t>(std::thread::hardware_concurrency() / 2, 1, kMost);
}

// Null: not set.
const char* variable_of(const LoadModels& command, const char* name) {
  const auto found = command.environment.find(name);
  return found == command.environment.end() ? nullptr : found->second.c_str();
}

}  // namespace

ModelRunner::ModelRunner(const ProxyOptions& options, MakeExecutor make_executor,
                         std::function<bool()> peer_is_gone)
    : options_(options),
      make_executor_(std::move(make_executor)),
      peer_is_gone_(std::move(peer_is_gone)) {}

Status ModelRunner::prepare(const LoadModels& command, FailureCause& cause) {
  if (executor_ != nullptr) return {StatusCode::invalid, "this proxy already serves a gpulet"};
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

// Returns the share that the device gave this gpulet. Fails if it is not the expected one.
Result<partition::FoundShare> ModelRunner::find_share(const LoadModels& command) {
  GPULET_TRY(const auto expected,
             parse_expected_share(variable_of(command, partition::kExpectedShareVariable),
                                  variable_of(command, partition::kDeviceSmsVariable)));
  auto found = executor_->found_share();
  if (!found.ok()) return found;
  return check_share(expected, found.value());
}

// Opening a model's file through its backend spares the proxy access to the store.
Result<std::uint32_t> ModelRunner::load(const ModelToLoad& model) {
  ModelToLoad request = images_.load(model);
  if (options_.files_fd < 0 || model.file.empty()) return executor_->load(request);
  const Result<FileDescriptor> file = receive_model_file(options_.files_fd);
  if (!file.ok()) {
    return Status(StatusCode::malformed, file.status().message())
        .within("model '" + model.name + "': " + model.file);
  }
  request.file = "/proc/self/fd/" + std::to_string(file.value().get());
  Result<std::uint32_t> variant = executor_->load(request);
  if (variant.ok()) return variant;
  return Status(variant.status().code(), without_path(variant.status().message(), request.file));
}

Status ModelRunner::load_models(const LoadModels& command, ProxyReady& ready) {
  auto found = find_share(command);
  if (!found.ok()) {
    ready.cause = FailureCause::device;
    return found.status();
  }
  ready.found = found.value();
  for (const ModelToLoad& model : command.models) {
    if (peer_is_gone_())
      return {StatusCode::cancelled, "the backend no longer waits for these models"};
    const Result<std::uint32_t> variant = load(model);
    if (!variant.ok()) {
      ready.cause = cause_of_loading(variant.status().code());
      ready.failed_model = model.name;
      return variant.status();
    }
    log_error(model.name, executor_->error_of(variant.value()));
    ready.load_stages += executor_->load_stages();
    ready.variants.push_back(variant.value());
  }
  return {};
}

ProxyReady ModelRunner::load(const LoadModels& command) {
  ProxyReady ready;
  ready.status = prepare(command, ready.cause);
  if (ready.status.ok()) {
    ready.status = load_models(command, ready);
    if (ready.status.ok()) {
      images_.set_depth(executor_->depth());
      images_.set_threads(decoding_threads());
      ready.condition = executor_->condition().value_or(partition::ProcessCondition());
      executor_->serving();
    } else {
      ready.device = executor_->health();
    }
  }
  ready.memory_bytes = resident_bytes();
  return ready;
}

std::optional<partition::ProcessCondition> ModelRunner::condition() const {
  return executor_->condition();
}

std::size_t ModelRunner::depth() const { return executor_ == nullptr ? 1 : executor_->depth(); }

// Returns the executor's view of the batch. Fails if the batch must not run.
Result<executor::BatchToRun> ModelRunner::check(const RunBatch& batch, Duration waited) const {
  if (waited > batch.start_within) {
    return Status(
        StatusCode::too_late,
        fmt::format(
            "the batch had to start within {:f} ms but waited {:f} ms for the batches before it",
            to_ms(batch.start_within), to_ms(waited)));
  }
  if (executor_ == nullptr) return Status(StatusCode::not_found, "no models are loaded");
  const std::span<std::byte> memory = memory_->bytes();
  if (Status status = check_areas(batch, memory.size()); !status.ok()) return status;
  // An earlier batch may have left its inputs there.
  if (batch.synthetic && batch.input_bytes > 0)
    std::memset(memory.data() + batch.input_offset, 0, batch.input_bytes);
  return executor::BatchToRun{.model = batch.model,
                              .count = batch.count,
                              .input = memory.subspan(batch.input_offset, batch.input_bytes),
                              .output = memory.subspan(batch.output_offset, batch.output_capacity),
                              .simulated_latency = batch.simulated_latency};
}

Status ModelRunner::decode_images(executor::BatchToRun& batch, BatchRan& ran) {
  if (!images_.decodes(batch.model)) return {};
  const Clock::time_point start = Clock::now();
  GPULET_TRY(DecodedBatch decoded, images_.decode(batch.model, batch.count, batch.input));
  batch.input = decoded.input;
  ran.failed = std::move(decoded.failed);
  ran.decoded = Clock::now() - start;
  return {};
}

BatchRan ModelRunner::run(const RunBatch& batch, Clock::time_point arrived) {
  const Clock::time_point start = Clock::now();
  BatchRan ran;
  ran.id = batch.id;
  ran.queued = start - arrived;
  auto checked = check(batch, ran.queued);
  Status runs = checked.status();
  if (runs.ok()) runs = decode_images(checked.value(), ran);
  if (!runs.ok()) {
    ran.status = runs.within(name_of(batch.id));
    return ran;
  }
  const Result<std::size_t> written = executor_->run(checked.value());
  ran.executed = Clock::now() - start;
  ran.condition = executor_->condition();
  if (written.ok()) {
    ran.output_bytes = written.value();
  } else {
    set_failure(ran, written.status(), executor_->failure_text());
  }
  return ran;
}

// A message about the input goes to the client, for whom batches do not exist.
void ModelRunner::set_failure(BatchRan& ran, const Status& why, std::string detail) const {
  ran.detail = std::move(detail);
  if (why.code() == StatusCode::invalid) {
    ran.cause = FailureCause::input;
    ran.status = why;
  } else {
    ran.status = why.within(name_of(ran.id));
    ran.device = executor_->health();
  }
}

BegunBatch ModelRunner::begin(const RunBatch& batch, Clock::time_point arrived) {
  BegunBatch begun;
  begun.arrived = arrived;
  begun.begun = Clock::now();
  begun.ran.id = batch.id;
  begun.ran.queued = begun.begun - arrived;
  auto checked = check(batch, begun.ran.queued);
  Status runs = checked.status();
  if (runs.ok()) runs = decode_images(checked.value(), begun.ran);
  if (!runs.ok()) {
    begun.ran.status = runs.within(name_of(batch.id));
    return begun;
  }
  auto running = executor_->begin(checked.value());
  if (running.ok()) {
    begun.running = std::move(running).value();
  } else {
    set_failure(begun.ran, running.status(), executor_->failure_text());
  }
  return begun;
}

}  // namespace gpulet::proxy
