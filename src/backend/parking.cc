#include "backend/parking.h"

#include <algorithm>

namespace gpulet::backend {
namespace {

bool is_same(const ModelToLoad& loaded, const ModelToLoad& wanted) {
  return loaded.name == wanted.name && loaded.file == wanted.file &&
         loaded.inputs == wanted.inputs && loaded.outputs == wanted.outputs &&
         loaded.max_batch == wanted.max_batch && loaded.numerics == wanted.numerics;
}

bool prepared(const ModelToLoad& loaded, const ModelToLoad& wanted) {
  const std::vector<std::uint32_t>& sizes = loaded.planned_batches;
  return std::all_of(wanted.planned_batches.begin(), wanted.planned_batches.end(),
                     [&](std::uint32_t size) {
                       return std::find(sizes.begin(), sizes.end(), size) != sizes.end();
                     });
}

// The sizes beside `size`, the larger one first.
std::vector<Share> beside(const std::vector<Share>& sizes, Share size) {
  std::vector<Share> found;
  const auto above = std::upper_bound(sizes.begin(), sizes.end(), size);
  if (above != sizes.end()) found.push_back(*above);
  const auto own = std::lower_bound(sizes.begin(), sizes.end(), size);
  if (own != sizes.begin()) found.push_back(*std::prev(own));
  return found;
}

}  // namespace

bool may_park(const node::StartGpulet& order) {
  return order.memory_mb > 0 && !order.instance && !order.adjustable;
}

bool can_serve(const LoadedProcess& process, const node::StartGpulet& order) {
  const node::StartGpulet& loaded = process.order;
  if (!may_park(order) || loaded.device != order.device || loaded.size != order.size) return false;
  if (loaded.memory_mb < order.memory_mb || loaded.input_capacity < order.input_capacity ||
      loaded.output_capacity < order.output_capacity)
    return false;
  const std::vector<ModelToLoad>& models = order.models.models;
  return std::all_of(models.begin(), models.end(), [&](const ModelToLoad& wanted) {
    return std::any_of(
        loaded.models.models.begin(), loaded.models.models.end(), [&](const ModelToLoad& one) {
          return is_same(one, wanted) && (process.sizes_to_capture == 0 || prepared(one, wanted));
        });
  });
}

std::vector<std::uint32_t> variants_for(const std::vector<ModelToLoad>& wanted,
                                        const std::vector<ModelToLoad>& loaded,
                                        const std::vector<std::uint32_t>& variants) {
  std::vector<std::uint32_t> found;
  for (const ModelToLoad& model : wanted) {
    std::uint32_t variant = 0;
    for (std::size_t i = 0; i < std::min(loaded.size(), variants.size()); ++i) {
      if (loaded[i].name == model.name) variant = variants[i];
    }
    found.push_back(variant);
  }
  return found;
}

double ParkingSpace::allowed() const {
  return device > 0 ? std::clamp(device - running, 0.0, most) : most;
}

std::optional<node::StartGpulet> next_ahead(
    const std::vector<node::StartGpulet>& running, const std::vector<LoadedProcess>& parked,
    const std::map<std::uint32_t, std::vector<Share>>& sizes,
    const std::map<std::uint32_t, double>& left_mb) {
  for (const node::StartGpulet& gpulet : running) {
    const auto left = left_mb.find(gpulet.device);
    const auto known = sizes.find(gpulet.device);
    if (!may_park(gpulet) || left == left_mb.end() || known == sizes.end()) continue;
    if (gpulet.memory_mb > left->second) continue;
    for (const Share size : beside(known->second, gpulet.size)) {
      node::StartGpulet ahead = gpulet;
      ahead.size = size;
      const auto serves = [&](const LoadedProcess& process) { return can_serve(process, ahead); };
      const bool exists = std::any_of(parked.begin(), parked.end(), serves) ||
                          std::any_of(running.begin(), running.end(), [&](const auto& other) {
                            return serves(LoadedProcess{other});
                          });
      if (!exists) return ahead;
    }
  }
  return std::nullopt;
}

}  // namespace gpulet::backend
