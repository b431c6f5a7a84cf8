#include "tools/measured_proxy.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <span>
#include <utility>

#include "gpulet/load/inputs.h"

namespace gpulet::tools {
namespace {

// Far beyond what any model needs on a slow core: only a process that hangs reaches them.
constexpr Duration kLoadTimeout = std::chrono::minutes(10);
constexpr Duration kStopTimeout = std::chrono::seconds(10);

constexpr std::uint64_t kInputSeed = 1;

// The layout of core/request.h for a batch of one request repeated.
void repeat(const config::ModelConfig& model, std::span<const std::byte> request,
            std::uint32_t count, std::span<std::byte> batch) {
  auto to = batch.begin();
  for (const TensorSpec& input : model.inputs) {
    const std::size_t size = byte_size(input).value();
    for (std::uint32_t i = 0; i < count; ++i) {
      to = std::copy_n(request.begin(), size, to);
    }
    request = request.subspan(size);
  }
}

}  // namespace

BlockingLoop::BlockingLoop() : signals_(context_, SIGINT, SIGTERM) {
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
              what + " took longer than " + std::to_string(to_seconds(timeout)) + " s"};
    }
  }
  return {};
}

Result<std::unique_ptr<MeasuredProxy>> MeasuredProxy::start(BlockingLoop& loop, ProxySource& source,
                                                            const partition::Grant& grant,
                                                            const config::ModelConfig& model,
                                                            std::uint32_t largest_batch,
                                                            std::function<bool(pid_t)> end) {
  const auto inputs = load::random_inputs(model.inputs, kInputSeed);
  if (!inputs.ok()) return inputs.status();
  const auto output_bytes = byte_size(model.outputs);
  if (!output_bytes.ok()) return output_bytes.status();
  const Bytes request = inputs.value().requests.front();

  std::unique_ptr<MeasuredProxy> proxy(new MeasuredProxy(loop, model, largest_batch, request));
  proxy->environment_ = grant.environment;
  proxy->slots_ = {.slots = kInFlight,
                   .input_capacity = request.size() * largest_batch,
                   .output_capacity = output_bytes.value() * largest_batch};
  MeasuredProxy* const self = proxy.get();  // outlives the process and with it the callbacks
  backend::ProxyCallbacks callbacks;
  callbacks.on_ready = [self](serve::ProxyReady ready) { self->ready_ = std::move(ready); };
  callbacks.on_ran = [self](serve::BatchRan ran, const Bytes&) {
    self->ran_.push_back({std::chrono::steady_clock::now(), std::move(ran)});
  };
  callbacks.on_exit = [self](Status reason) { self->ended_ = std::move(reason); };
  callbacks.end = std::move(end);
  auto process = source.make(grant, std::move(callbacks));
  if (!process.ok()) return process.status();
  proxy->process_ = std::move(process).value();
  return proxy;
}

Status MeasuredProxy::wait(const std::function<bool()>& done, Duration timeout,
                           const std::string& what) {
  Status waited = loop_.wait([&] { return done() || ended_.has_value(); }, timeout, what);
  if (!waited.ok() || done()) return waited;
  const std::string how = ended_->ok() ? "it exited" : ended_->message();
  return {StatusCode::unavailable, "the proxy ended during " + what + ": " + how};
}

Result<serve::ProxyReady> MeasuredProxy::load() {
  serve::LoadModels models;
  models.models.push_back({model_.name, model_.file.string(), model_.inputs, model_.outputs,
                           largest_batch_, 0, model_.numerics});
  models.environment = environment_;
  if (Status sent = process_->load(std::move(models), slots_); !sent.ok()) return sent;
  if (Status waited = wait([this] { return ready_.has_value(); }, kLoadTimeout, "loading");
      !waited.ok()) {
    return waited;
  }
  if (!ready_->status.ok()) return ready_->status;
  return *ready_;
}

Status MeasuredProxy::stop() {
  process_->stop(kStopTimeout);
  return loop_.wait([this] { return ended_.has_value(); }, 2 * kStopTimeout, "the proxy's end");
}

Status MeasuredProxy::submit(std::uint32_t batch) {
  std::optional<MutableBytes> input = process_->take_slot(request_.size() * batch);
  if (!input) {
    return {StatusCode::internal,
            "a batch of " + std::to_string(batch) + " finds no free memory slot"};
  }
  repeat(model_, request_.view(), batch, input->view());
  serve::RunBatch command;
  command.id = BatchId{++last_batch_.value};
  command.model = model_.name;
  command.count = batch;
  command.start_within = kBatchTimeout;
  process_->run(std::move(command), input->freeze());
  return {};
}

Result<MeasuredProxy::Answer> MeasuredProxy::next() {
  if (Status waited = wait([this] { return !ran_.empty(); }, kBatchTimeout, "a batch");
      !waited.ok()) {
    return waited;
  }
  const Ran ran = std::move(ran_.front());
  ran_.pop_front();
  if (!ran.message.status.ok()) return ran.message.status.within("a batch");
  return Answer{ran.at, ran.message.executed};
}

}  // namespace gpulet::tools
