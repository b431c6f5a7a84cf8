#include "node/hosted_gpulet.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <utility>

namespace gpulet::node {
namespace {

// Bytes of the largest batch. Fails if a tensor has no size, or the batch exceeds one message.
Result<std::size_t> batch_bytes(const std::vector<TensorSpec>& tensors, std::uint32_t max_batch) {
  GPULET_TRY(const auto one, byte_size(tensors));
  if (max_batch == 0) return Status(StatusCode::invalid, "max_batch must be at least 1; was 0");
  if (one > std::numeric_limits<std::uint32_t>::max() / max_batch) {
    return Status(
        StatusCode::invalid,
        fmt::format(
            "a batch of {} times {} bytes exceeds what one message carries; lower max_batch",
            max_batch, one));
  }
  return one * max_batch;
}

struct PhaseTraits {
  std::string_view name;
  GpuletState reported{};
  bool has_process = false;
};

// In the order of the enumerators.
constexpr std::array<PhaseTraits, 8> kPhases = {{{"fetching", GpuletState::preparing, false},
                                                 {"starting", GpuletState::preparing, true},
                                                 {"loading", GpuletState::preparing, true},
                                                 {"ready", GpuletState::ready, true},
                                                 {"restarting", GpuletState::restarting, false},
                                                 {"failed", GpuletState::failed, false},
                                                 {"retiring", GpuletState::gone, true},
                                                 {"gone", GpuletState::gone, false}}};
static_assert(kPhases.size() == static_cast<std::size_t>(GpuletPhase::gone) + 1);

const PhaseTraits& traits_of(GpuletPhase phase) { return kPhases[static_cast<std::size_t>(phase)]; }

}  // namespace

std::string_view to_string(GpuletPhase phase) { return traits_of(phase).name; }
bool has_process(GpuletPhase phase) { return traits_of(phase).has_process; }
GpuletState reported_state(GpuletPhase phase) { return traits_of(phase).reported; }

bool is_legal_transition(GpuletPhase from, GpuletPhase to) {
  using enum GpuletPhase;
  const auto one_of = [to](auto... phases) { return ((to == phases) || ...); };
  if (from == fetching) return one_of(starting, failed, gone);
  if (from == starting) return one_of(loading, restarting, failed, retiring);
  if (from == loading) return one_of(ready, restarting, failed, retiring);
  if (from == ready) return one_of(restarting, retiring);
  if (from == restarting) return one_of(starting, gone);
  return from != gone && to == gone;
}

Result<HostedGpulet> HostedGpulet::create(CreateGpulet request, Time now) {
  HostedGpulet gpulet;
  if (!request.size.valid()) {
    return Status(StatusCode::invalid,
                  fmt::format("a gpulet's share must be 1..100 %; was {}", request.size.percent));
  }
  if (request.models.empty())
    return Status(StatusCode::invalid, "a gpulet needs at least one model");
  for (const auto& model : request.models) {
    const auto input = batch_bytes(model.inputs, model.max_batch);
    const auto output = batch_bytes(model.outputs, model.max_batch);
    const auto sized = input.ok() ? output.status() : input.status();
    if (!sized.ok()) return sized.within("model '" + model.name + "'");
    Sizes sizes{input.value() / model.max_batch, model.max_batch, version_of(model)};
    for (const TensorSpec& tensor : model.inputs) sizes.inputs.push_back(byte_size(tensor).value());
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
  report.load_stages = load_stages;
  report.condition = condition;
  report.part = request_.part;
  report.instance = instance();
  report.owner = owner;
  return report;
}

void HostedGpulet::enter(GpuletPhase phase, Time now) {
  if (!is_legal_transition(phase_, phase)) {
    throw std::logic_error(fmt::format("illegal transition of a gpulet from {} to {}",
                                       to_string(phase_), to_string(phase)));
  }
  phase_ = phase;
  phase_since_ = now;
}

Status HostedGpulet::check(const Batch& batch) const {
  const auto found = sizes_.find(batch.model);
  if (found == sizes_.end()) {
    return {StatusCode::not_found,
            fmt::format("{} does not serve the model '{}'", name_of(id()), batch.model)};
  }
  if (batch.count == 0 || batch.count > found->second.max_batch) {
    return {StatusCode::invalid, fmt::format("a batch of '{}' must have 1..{} requests; had {}",
                                             batch.model, found->second.max_batch, batch.count)};
  }
  if (batch.synthetic && !batch.entries.empty()) {
    return {StatusCode::invalid,
            fmt::format("a synthetic batch of '{}' has inputs at entries", batch.model)};
  }
  if (!batch.entries.empty()) return {};
  std::size_t bytes = 0;
  for (const auto& input : batch.inputs) bytes += input.size();
  if (batch.synthetic && bytes == 0) return {};
  const auto expected = found->second.input * batch.count;
  if (bytes != expected) {
    return {StatusCode::invalid,
            fmt::format("a batch of {} of '{}' must have {} input bytes; had {}", batch.count,
                        batch.model, expected, bytes)};
  }
  return {};
}

std::vector<Bytes> HostedGpulet::in_layout(const std::string& model,
                                           const std::vector<Bytes>& requests) const {
  std::vector<Bytes> slices;
  std::size_t offset = 0;
  for (const std::size_t bytes : sizes_.at(model).inputs) {
    for (const Bytes& request : requests) slices.push_back(request.slice(offset, bytes));
    offset += bytes;
  }
  return slices;
}

LoadModels HostedGpulet::load_request(const std::map<std::string, std::string>& files) const {
  LoadModels load;
  for (const auto& model : request_.models) {
    const auto file = files.find(model.sha256);
    load.models.push_back({model.name, file == files.end() ? std::string() : file->second,
                           model.inputs, model.outputs, model.max_batch, 0, model.numerics,
                           model.planned_batches});
  }
  return load;
}

}  // namespace gpulet::node
