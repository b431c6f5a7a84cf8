#include "gpulet/serve/hosted_gpulet.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "gpulet/serve/served_model.h"

namespace gpulet::serve {
namespace {

// Bytes of a whole batch. Fails where it has no size, or none that this machine can address.
Result<std::size_t> batch_bytes(const std::vector<TensorSpec>& tensors, std::uint32_t max_batch) {
  const auto one = byte_size(tensors);
  if (!one.ok()) return one.status();
  if (max_batch == 0) return Status(StatusCode::invalid, "max_batch must be at least 1; was 0");
  if (one.value() > std::numeric_limits<std::uint32_t>::max() / max_batch) {
    return Status(StatusCode::invalid, "a batch of " + std::to_string(max_batch) + " times " +
                                           std::to_string(one.value()) +
                                           " bytes is beyond what one message carries");
  }
  return one.value() * max_batch;
}

}  // namespace

Result<HostedGpulet> HostedGpulet::create(CreateGpulet asked, Time now) {
  HostedGpulet gpulet;
  if (!asked.size.valid()) {
    return Status(StatusCode::invalid,
                  "a gpulet's share must be 1..100 %; was " + std::to_string(asked.size.percent));
  }
  if (asked.models.empty()) return Status(StatusCode::invalid, "a gpulet needs a model");
  for (const auto& model : asked.models) {
    const auto input = batch_bytes(model.inputs, model.max_batch);
    const auto output = batch_bytes(model.outputs, model.max_batch);
    const auto sized = input.ok() ? output.status() : input.status();
    if (!sized.ok()) return sized.within("model '" + model.name + "'");
    const Sizes sizes{input.value() / model.max_batch, model.max_batch, version_of(model)};
    if (!gpulet.sizes_.emplace(model.name, sizes).second) {
      return Status(StatusCode::invalid, "model '" + model.name + "' is named twice");
    }
    gpulet.input_capacity_ = std::max(gpulet.input_capacity_, input.value());
    gpulet.output_capacity_ = std::max(gpulet.output_capacity_, output.value());
  }
  gpulet.asked_ = std::move(asked);
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
  const bool ends = told_restarting && phase_ == GpuletPhase::ready;
  report.state = ends ? GpuletState::restarting : reported_state(phase_);
  report.status = ends ? doomed : status;
  if (report.state == GpuletState::restarting || report.state == GpuletState::failed) {
    report.cause = cause;
    report.failed_model = failed_model;
  }
  report.found = found_share;
  report.part = asked_.part;
  report.instance = instance();
  return report;
}

void HostedGpulet::enter(GpuletPhase phase, Time now) {
  if (!is_legal_transition(phase_, phase)) {
    throw std::logic_error("a gpulet cannot go from " + std::string(to_string(phase_)) + " to " +
                           std::string(to_string(phase)));
  }
  phase_ = phase;
  phase_since_ = now;
}

Status HostedGpulet::check(const Batch& batch) const {
  const auto found = sizes_.find(batch.model);
  if (found == sizes_.end()) {
    return {StatusCode::not_found,
            name_of(id()) + " does not hold the model '" + batch.model + "'"};
  }
  if (batch.count == 0 || batch.count > found->second.max_batch) {
    return {StatusCode::invalid, "a batch of '" + batch.model + "' has 1.." +
                                     std::to_string(found->second.max_batch) +
                                     " requests here; had " + std::to_string(batch.count)};
  }
  std::size_t bytes = 0;
  for (const auto& input : batch.inputs) bytes += input.size();
  const auto wanted = found->second.input * batch.count;
  if (bytes != wanted) {
    return {StatusCode::invalid, "a batch of " + std::to_string(batch.count) + " of '" +
                                     batch.model + "' has " + std::to_string(wanted) +
                                     " input bytes; had " + std::to_string(bytes)};
  }
  return {};
}

LoadModels HostedGpulet::loading_order(const std::map<std::string, std::string>& files) const {
  LoadModels order;
  for (const auto& model : asked_.models) {
    const auto file = files.find(model.sha256);
    order.models.push_back({model.name, file == files.end() ? std::string() : file->second,
                            model.inputs, model.outputs, model.max_batch, 0, model.numerics});
  }
  return order;
}

}  // namespace gpulet::serve
