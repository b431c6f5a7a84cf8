#include "tests/support/mig/workloads.h"

#include <algorithm>
#include <cmath>

#include "gpulet/base/random.h"

namespace gpulet::schedule::mig::testing {
namespace {

constexpr std::uint32_t kBatchOfKinds = 8;
constexpr std::uint32_t kWhole = 7;
constexpr double kTwoPi = 6.283185307179586;

double between(Random& random, double low, double high) {
  return low + (high - low) * random.uniform();
}

// Log-uniform.
double by_factors(Random& random, double low, double high) {
  return low * std::pow(high / low, random.uniform());
}

double normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log1p(-random.uniform()));
  return radius * std::cos(kTwoPi * random.uniform());
}

// 3g and 7g have one more memory slice than compute slices.
double memory_slices(std::uint32_t slices) {
  return slices == 3 || slices == 7 ? slices + 1 : slices;
}

// `idle`: the fixed time of a batch of 8 on one slice, as a fraction of its compute time.
Model drawn(Random& random, Growth kind) {
  Model model;
  model.compute_ms = by_factors(random, 0.6, 6);
  double idle = between(random, 0.001, 0.008);
  if (kind == Growth::sub_linear) idle = by_factors(random, 0.06, 0.8);
  model.crowding = between(random, 0, 0.03);
  if (kind == Growth::super_linear) model.crowding = between(random, 0.15, 0.6);
  model.fixed_ms = idle * kBatchOfKinds * model.compute_ms;
  model.t4_in_1g = between(random, 1.2, 1.6);
  return model;
}

// One model of eight is too large for 1g; one of 24, a sub-linear one, also for 2g.
double drawn_memory_mb(Random& random, std::size_t index) {
  if (index % 24 == 22) return between(random, 11000, 17000);
  if (index % 8 == 7) return between(random, 5500, 9000);
  return by_factors(random, 700, 4500);
}

std::uint32_t smallest_slices(const Model& model) {
  const auto a100 = partition::MigGeometry::of("a100-40").value();
  for (const partition::MigProfile& profile : a100.profiles()) {
    if (profile.memory_mb >= model.memory_mb) return profile.slices;
  }
  return kWhole;
}

// The maximum total rate of the processes within the limit, on a device that is `speed` times as
// fast as the slices.
double most_rate(const Model& model, std::uint32_t slices, std::uint32_t processes, double speed,
                 const BatchLimit& limit) {
  double most = 0;
  for (const std::uint32_t batch : kBatches) {
    const double ms = latency_ms(model, batch, slices, processes) / speed;
    if (ms <= limit.ms && batch <= limit.largest) most = processes * batch * 1000 / ms;
  }
  return most;
}

double need_of(const Model& model, double devices, const BatchLimit& limit) {
  return devices * most_rate(model, kWhole, 1, 1, limit);
}

// The models with even numbers become sub-linear first, then those with odd numbers. A model that
// is too large for 2g (number 22) cannot be super-linear.
Growth kind_of(std::size_t index, std::size_t count, double sub_linear) {
  const std::size_t rank = index % 2 == 0 ? index / 2 : (count + 1) / 2 + index / 2;
  if (static_cast<double>(rank) + 0.5 < sub_linear * static_cast<double>(count))
    return Growth::sub_linear;
  return index % 4 == 1 || index % 4 == 2 ? Growth::linear : Growth::super_linear;
}

}  // namespace

std::string_view to_string(Growth growth) {
  switch (growth) {
    case Growth::sub_linear:
      return "sub-linear";
    case Growth::linear:
      return "linear";
    case Growth::super_linear:
      break;
  }
  return "super-linear";
}

double latency_ms(const Model& model, std::uint32_t batch, std::uint32_t slices,
                  std::uint32_t processes) {
  const double crowded = 1 + model.crowding / memory_slices(slices);
  const double compute_ms = model.compute_ms * batch * crowded / slices;
  return (model.fixed_ms + processes * compute_ms) * (1 + 0.02 * (processes - 1));
}

Growth growth(const Model& model, std::uint32_t batch) {
  const std::uint32_t smallest = smallest_slices(model);
  const double of_slice = 1 / latency_ms(model, batch, smallest) / smallest;
  const double ratio = 1 / latency_ms(model, batch, kWhole) / of_slice;
  if (ratio < 6.5) return Growth::sub_linear;
  return ratio <= 7.5 ? Growth::linear : Growth::super_linear;
}

std::vector<Model> generated_models(std::uint64_t seed, std::size_t count, double sub_linear) {
  std::vector<Model> models;
  for (std::size_t index = 0; index < count; ++index) {
    const std::string name = "model" + std::to_string(index);
    Random random(stream_seed(seed, name));
    const Growth kind = kind_of(index, count, sub_linear);
    const double memory_mb = drawn_memory_mb(random, index);
    Model model;
    do {
      model = drawn(random, kind);
      model.memory_mb = memory_mb;
    } while (growth(model, kBatchOfKinds) != kind);
    model.name = name;
    models.push_back(std::move(model));
  }
  return models;
}

double rate_on(const Model& model, const partition::MigProfile& profile,
               std::uint32_t most_processes, const BatchLimit& limit) {
  double most = 0;
  for (std::uint32_t processes = 1; processes <= most_processes; ++processes) {
    if (processes * model.memory_mb > profile.memory_mb) break;
    most = std::max(most, most_rate(model, profile.slices, processes, 1, limit));
  }
  return most;
}

std::vector<Workload> generated_workloads(std::uint64_t seed, std::size_t models) {
  std::vector<Workload> workloads;
  const auto add = [&](const std::string& name, const auto& devices) {
    Workload& workload = workloads.emplace_back();
    workload.name = name;
    Random random(stream_seed(seed, name));
    for (std::size_t model = 0; model < models; ++model)
      workload.devices.push_back(std::max(0.5, devices(normal(random))));
  };
  add("normal-1", [](double drawn) { return 10 + 3 * drawn; });
  add("normal-2", [](double drawn) { return 16 + 6 * drawn; });
  add("lognormal-1", [](double drawn) { return 8 * std::exp(0.6 * drawn); });
  add("lognormal-2", [](double drawn) { return 8 * std::exp(1.0 * drawn); });
  return workloads;
}

DeploymentTask task_of(const Workload& workload, const std::vector<Model>& models,
                       const partition::MigGeometry& geometry, std::uint32_t most_processes,
                       const BatchLimit& limit) {
  DeploymentTask task{geometry, {}};
  for (std::size_t index = 0; index < models.size(); ++index) {
    Service& service = task.services.emplace_back();
    service.name = models[index].name;
    service.need = need_of(models[index], workload.devices[index], limit);
    for (const partition::MigProfile& profile : geometry.profiles())
      service.rate_on.push_back(rate_on(models[index], profile, most_processes, limit));
  }
  return task;
}

std::size_t t4_devices(const Workload& workload, const std::vector<Model>& models,
                       const BatchLimit& limit) {
  double devices = 0;
  for (std::size_t index = 0; index < models.size(); ++index) {
    const Model& model = models[index];
    const double rate = most_rate(model, 1, 1, model.t4_in_1g, limit);
    devices += std::ceil(need_of(model, workload.devices[index], limit) / rate);
  }
  return static_cast<std::size_t>(devices);
}

}  // namespace gpulet::schedule::mig::testing
