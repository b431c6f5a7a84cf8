#include "serve/hosted_gpulet.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "gpulet/serve/served_model.h"

namespace gpulet::serve {
namespace {

// Bytes of the largest batch. Fails if a tensor has no size, or the batch exceeds one message.
Result<std::size_t> batch_bytes(const std::vector<TensorSpec>& tensors, std::uint32_t max_batch) {
  const auto one = byte_size(tensors);
  if (!one.ok()) return one.status();
  if (max_batch == 0) return Status(StatusCode::invalid, "max_batch must be at least 1; was 0");
  if (one.value() > std::numeric_limits<std::uint32_t>::max() / max_batch) {
    return Status(StatusCode::invalid,
                  "a batch of " + std::to_string(max_batch) + " times " +
                      std::to_string(one.value()) +
                      " bytes exceeds what one message carries; lower max_batch");
  }
  return one.value() * max_batch;
}

}  // namespace

std::string_view to_string(GpuletPhase phase) {
  switch (phase) {
    case GpuletPhase::fetching:
      return "fetching";
    case GpuletPhase::starting:
      return "starting";
    case GpuletPhase::loading:
      return "loading";
    case GpuletPhase::ready:
      return "ready";
    case GpuletPhase::restarting:
      return "restarting";
    case GpuletPhase::failed:
      return "failed";
    case GpuletPhase::retiring:
      return "retiring";
    case GpuletPhase::gone:
      return "gone";
  }
  return "unknown";
}

bool is_legal_transition(GpuletPhase from, GpuletPhase to) {
  using enum GpuletPhase;
  switch (from) {
    case fetching:
      return to == starting || to == failed || to == gone;
    case starting:
      return to == loading || to == restarting || to == failed || to == retiring;
    case loading:
      return to == ready || to == restarting || to == failed || to == retiring;
    case ready:
      return to == restarting || to == retiring;
    case restarting:
      return to == starting || to == gone;
    case failed:
    case retiring:
      return to == gone;
    case gone:
      return false;
  }
  return false;
}

bool has_process(GpuletPhase phase) {
  using enum GpuletPhase;
  return phase == starting || phase == loading || phase == ready || phase == retiring;
}

GpuletState reported_state(GpuletPhase phase) {
  switch (phase) {
    case GpuletPhase::fetching:
    case GpuletPhase::starting:
    case GpuletPhase::loading:
      return GpuletState::preparing;
    case GpuletPhase::ready:
      return GpuletState::ready;
    case GpuletPhase::restarting:
      return GpuletState::restarting;
    case GpuletPhase::failed:
      return GpuletState::failed;
    case GpuletPhase::retiring:
    case GpuletPhase::gone:
      return GpuletState::gone;
  }
  return GpuletState::gone;
}

Result<HostedGpulet> HostedGpulet::create(CreateGpulet request, Time now) {
  HostedGpulet gpulet;
  if (!request.size.valid()) {
    return Status(StatusCode::invalid,
                  "a gpulet's share must be 1..100 %; was " + std::to_string(request.size.percent));
  }
  if (request.models.empty())
    return Status(StatusCode::invalid, "a gpulet needs at least one model");
  for (const auto& model : request.models) {
    const auto input = batch_bytes(model.inputs, model.max_batch);
    const auto output = batch_bytes(model.outputs, model.max_batch);
    const auto sized = input.ok() ? output.status() : input.status();
    if (!sized.ok()) return sized.within("model '" + model.name + "'");
    const Sizes sizes{input.value() / model.max_batch, model.max_batch, version_of(model)};
    if (!gpulet.sizes_.emplace(model.name, sizes).second) {
      return Status(StatusCode::invalid, "model '" + model.name + "' occurs twice in one gpulet");
    }
    gpulet.input_capacity_ = std::max(gpulet.input_capacity_, input.value());
    gpulet.output_capacity_ = std::max(gpulet.output_capacity_, output.value());
  }
  gpulet.request_ = std::move(request);
  gpulet.phase_since_ = now;
  return gpulet;
}

GpuletReport HostedGpulet::report() const {
  GpuletReport report;
  report.id = id();
  report.device = device();
  report.size = size();
  for (const auto& [name, sizes] : sizes_)
    report.models.push_back({name, sizes.max_batch, sizes.version});
  const bool ends = reported_restarting && phase_ == GpuletPhase::ready;
  report.state = ends ? GpuletState::restarting : reported_state(phase_);
  report.status = ends ? terminating : status;
  if (report.state == GpuletState::restarting || report.state == GpuletState::failed) {
    report.cause = cause;
    report.failed_model = failed_model;
  }
  report.found = found_share;
  report.part = request_.part;
  report.instance = instance();
  return report;
}

void HostedGpulet::enter(GpuletPhase phase, Time now) {
  if (!is_legal_transition(phase_, phase)) {
    throw std::logic_error("illegal transition of a gpulet from " + std::string(to_string(phase_)) +
                           " to " + std::string(to_string(phase)));
  }
  phase_ = phase;
  phase_since_ = now;
}

Status HostedGpulet::check(const Batch& batch) const {
  const auto found = sizes_.find(batch.model);
  if (found == sizes_.end()) {
    return {StatusCode::not_found,
            name_of(id()) + " does not serve the model '" + batch.model + "'"};
  }
  if (batch.count == 0 || batch.count > found->second.max_batch) {
    return {StatusCode::invalid, "a batch of '" + batch.model + "' must have 1.." +
                                     std::to_string(found->second.max_batch) + " requests; had " +
                                     std::to_string(batch.count)};
  }
  std::size_t bytes = 0;
  for (const auto& input : batch.inputs) bytes += input.size();
  const auto expected = found->second.input * batch.count;
  if (bytes != expected) {
    return {StatusCode::invalid, "a batch of " + std::to_string(batch.count) + " of '" +
                                     batch.model + "' must have " + std::to_string(expected) +
                                     " input bytes; had " + std::to_string(bytes)};
  }
  return {};
}

LoadModels HostedGpulet::load_request(const std::map<std::string, std::string>& files) const {
  LoadModels load;
  for (const auto& model : request_.models) {
    const auto file = files.find(model.sha256);
    load.models.push_back({model.name, file == files.end() ? std::string() : file->second,
                           model.inputs, model.outputs, model.max_batch, 0, model.numerics});
  }
  return load;
}

}  // namespace gpulet::serve
