#include "tools/measure/measured_proxy.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <span>
#include <utility>

#include "gpulet/config/onnx_signature.h"
#include "gpulet/load/client.h"

namespace gpulet::tools {

Result<std::unique_ptr<backend::Proxy>> ProxyFactory::make(const partition::Grant& grant,
                                                           const std::filesystem::path& model,
                                                           backend::ProxyCallbacks callbacks) {
  if (!shared_process_) {
    const auto format = config::format_of(model);
    const bool onnx = format.ok() && format.value() == config::FileFormat::onnx;
    backend::ProxyOptions options{onnx && !programs_.onnx.empty() ? programs_.onnx
                                                                  : programs_.proxy};
    options.confinement.native_models = programs_.native_models;
    if (grant.read_at_start) options.environment = grant.environment;
    GPULET_TRY(auto started,
               backend::ProxyProcess::start(executor_, options, std::move(callbacks)));
    return std::unique_ptr<backend::Proxy>(std::move(started));
  }
  if (process_ == nullptr || !process_->accepts_workers()) {
    backend::ProxyOptions options{programs_.proxy};
    options.confinement.native_models = programs_.native_models;
    GPULET_TRY(auto started,
               backend::DeviceProcess::start(executor_, options, [](const Status&) {}));
    process_ = std::move(started);
  }
  return process_->add_worker(std::move(callbacks));
}

namespace {

// Far beyond the time of any model on a slow core: only a hung process reaches them.
constexpr Duration kLoadTimeout = std::chrono::minutes(10);
constexpr Duration kStopTimeout = std::chrono::seconds(10);

constexpr std::uint64_t kInputSeed = 1;

// Those of the configuration, and otherwise what the file says of inputs that index a table.
load::ValueRanges ranges_of(const config::ModelConfig& model) {
  load::ValueRanges ranges;
  for (const TensorSpec& input : model.inputs) {
    if (input.range) ranges.emplace(input.name, *input.range);
  }
  const auto format = config::format_of(model.file);
  if (!format.ok() || format.value() != config::FileFormat::onnx) return ranges;
  const auto limits = config::read_index_limits(model.file);
  if (!limits.ok()) return ranges;  // loading says what is wrong with the file
  for (const TensorSpec& input : model.inputs) {
    const auto limit = limits.value().find(input.name);
    if (limit == limits.value().end()) continue;
    const config::ValueRange range{0, static_cast<double>(limit->second - 1)};
    if (config::check_range(input.type, range).ok()) ranges.try_emplace(input.name, range);
  }
  return ranges;
}

// Lays out a batch that repeats one request (core/request.h).
void repeat(const config::ModelConfig& model, std::span<const std::byte> request,
            std::uint32_t count, std::span<std::byte> batch) {
  auto to = batch.begin();
  for (const TensorSpec& input : model.inputs) {
    const std::size_t size = byte_size(input).value();
    for (std::uint32_t i = 0; i < count; ++i) to = std::copy_n(request.begin(), size, to);
    request = request.subspan(size);
  }
}

}  // namespace

BlockingLoop::BlockingLoop() : signals_(context_, SIGINT, SIGTERM, SIGHUP) {
  signals_.async_wait([this](const auto& error, int) { interrupted_ = !error; });
}

Status BlockingLoop::wait(const std::function<bool()>& done, Duration timeout,
                          const std::string& what) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!done()) {
    if (interrupted_) return {StatusCode::cancelled, "interrupted while waiting for " + what};
    context_.restart();
    if (context_.run_one_until(deadline) == 0 && std::chrono::steady_clock::now() >= deadline) {
      return {StatusCode::timeout,
              fmt::format("{} took longer than {:f} s", what, to_seconds(timeout))};
    }
  }
  return {};
}

Result<std::unique_ptr<MeasuredProxy>> MeasuredProxy::start(
    BlockingLoop& loop, ProxyFactory& factory, const partition::Grant& grant,
    const config::ModelConfig& model, std::uint32_t largest_batch, std::function<bool(pid_t)> end) {
  GPULET_TRY(const auto inputs,
             load::random_inputs(model.inputs, kInputSeed, {}, ranges_of(model)));
  GPULET_TRY(const auto output_bytes, byte_size(model.outputs));
  const Bytes request = inputs.requests.front();

  std::unique_ptr<MeasuredProxy> proxy(new MeasuredProxy(loop, model, largest_batch, request));
  proxy->environment_ = grant.environment;
  proxy->slots_ = {.slots = kInFlight,
                   .input_capacity = request.size() * largest_batch,
                   .output_capacity = output_bytes * largest_batch};
  MeasuredProxy* const self = proxy.get();  // outlives the process and its callbacks
  backend::ProxyCallbacks callbacks;
  callbacks.on_ready = [self](ProxyReady ready) { self->ready_ = std::move(ready); };
  callbacks.on_ran = [self](BatchRan ran, const Bytes&) {
    self->completed_.push_back({std::chrono::steady_clock::now(), std::move(ran)});
  };
  callbacks.on_exit = [self](Status reason) { self->ended_ = std::move(reason); };
  callbacks.end = std::move(end);
  GPULET_TRY(auto process, factory.make(grant, model.file, std::move(callbacks)));
  proxy->process_ = std::move(process);
  return proxy;
}

Status MeasuredProxy::wait(const std::function<bool()>& done, Duration timeout,
                           const std::string& what) {
  Status waited = loop_.wait([&] { return done() || ended_.has_value(); }, timeout, what);
  if (!waited.ok() || done()) return waited;
  return {StatusCode::unavailable, fmt::format("the proxy ended during {}: {}", what,
                                               ended_->ok() ? "it exited" : ended_->message())};
}

Result<ProxyReady> MeasuredProxy::load() {
  if (Status begun = begin_load(); !begun.ok()) return begun;
  return finish_load();
}

Status MeasuredProxy::begin_load() {
  LoadModels models;
  models.models.push_back({model_.name, model_.file.string(), model_.inputs, model_.outputs,
                           largest_batch_, 0, model_.numerics});
  models.environment = environment_;
  return process_->load(std::move(models), slots_);
}

Result<ProxyReady> MeasuredProxy::finish_load() {
  if (Status waited = wait([this] { return ready_.has_value(); }, kLoadTimeout, "loading");
      !waited.ok()) {
    return waited;
  }
  if (!ready_->status.ok()) return ready_->status;
  return *ready_;
}

Status MeasuredProxy::stop() {
  begin_stop();
  return finish_stop();
}

void MeasuredProxy::begin_stop() { process_->stop(kStopTimeout); }

Status MeasuredProxy::finish_stop() {
  return loop_.wait([this] { return ended_.has_value(); }, 2 * kStopTimeout, "the proxy's end");
}

Status MeasuredProxy::submit(std::uint32_t batch) {
  std::optional<MutableBytes> input = process_->take_slot(request_.size() * batch);
  if (!input)
    return {StatusCode::internal, "no free memory slot for a batch of " + std::to_string(batch)};
  repeat(model_, request_.view(), batch, input->view());
  RunBatch command;
  command.id = BatchId{++last_batch_.value};
  command.model = model_.name;
  command.count = batch;
  command.start_within = kBatchTimeout;
  command.simulated_latency = simulated_latency_;
  process_->run(std::move(command), input->freeze());
  return {};
}

Result<MeasuredProxy::Response> MeasuredProxy::next() {
  if (Status waited = wait([this] { return !completed_.empty(); }, kBatchTimeout, "a batch");
      !waited.ok()) {
    return waited;
  }
  const CompletedBatch batch = std::move(completed_.front());
  completed_.pop_front();
  if (!batch.message.status.ok()) return batch.message.status.within("a batch");
  return Response{batch.at, batch.message.executed};
}

}  // namespace gpulet::tools
