#include "schedule/problem.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace gpulet::schedule {
namespace {

bool alike(const Device& a, const Device& b) {
  return a.type == b.type && a.max_partitions == b.max_partitions && a.memory_mb == b.memory_mb &&
         a.partitioning == b.partitioning && a.sizes == b.sizes && a.mig == b.mig &&
         a.processes_per_instance == b.processes_per_instance;
}

// How a device of the class may be divided, and what memory that gives each gpulet.
void describe_gpulets(DeviceClass* known) {
  const Device& device = *known->example;
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  if (!device.mig) {
    known->gpulet_mb.assign(known->sizes.size(), kNoLimit);
    return;
  }
  const auto profiles = device.mig->profiles();
  for (const partition::MigProfile& profile : profiles) {
    const double part = static_cast<double>(profile.memory_slices) / device.mig->memory_slices();
    const double of_device_mb = device.memory_mb > 0 ? device.memory_mb * part : kNoLimit;
    known->gpulet_mb.push_back(std::min(profile.memory_mb, of_device_mb));
  }
  std::set<std::vector<std::uint32_t>> divisions;
  for (const partition::MigLayout& layout : device.mig->maximal_layouts()) {
    std::vector<std::uint32_t> counts(profiles.size(), 0);
    for (const partition::MigInstance& instance : layout)
      ++counts[static_cast<std::size_t>(device.mig->find(instance.slices) - profiles.data())];
    divisions.insert(std::move(counts));
  }
  known->divisions.assign(divisions.begin(), divisions.end());
}

std::vector<std::uint32_t> measured_batches(const profile::LatencyTable& table) {
  std::vector<std::uint32_t> batches;
  batches.reserve(table.samples().size());
  for (const profile::LatencySample& sample : table.samples()) batches.push_back(sample.batch);
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  return batches;
}

}  // namespace

Problem::Problem(const PlanInput& input, Division division) : input_(&input) {
  models_.reserve(input.demands.size());
  for (const ModelDemand& demand : input.demands) {
    if (demand.rate > 0) models_.push_back(&demand);
  }
  std::sort(models_.begin(), models_.end(),
            [](const ModelDemand* a, const ModelDemand* b) { return a->name < b->name; });
  sort_devices_into_classes(division);
  device_budget_ = devices_.size();
  if (input.options.max_devices) {
    device_budget_ = std::min<std::size_t>(device_budget_, *input.options.max_devices);
  }
  for (std::size_t index = 0; index < classes_.size(); ++index) add_rows(index);
  finish_rows();
}

void Problem::finish_rows() {
  // The latencies have moved for the last time.
  const HeadroomTable* const headroom = headroom_table(input_->options.headroom);
  std::size_t first = 0;
  std::size_t next = 0;
  for (std::size_t index = 0; index < classes_.size(); ++index) {
    for (std::size_t model = 0; model < models_.size(); ++model) {
      ModelOnClass& known = on_class_[index * models_.size() + model];
      double best_rate = 0;
      for (std::uint32_t size = 0; size < classes_[index].sizes.size(); ++size) {
        Row& row = rows_[next++];
        row.latency_ms = latencies_ms_.data() + first;
        row.headroom = headroom;
        first += row.largest;
        rate_row(&row, models_[model]->slo_ms);
        if (row.most_rate <= best_rate) continue;
        best_rate = row.most_rate;
        known.best_size = size;
      }
    }
  }
}

const Row& Problem::row_beside(std::size_t model, std::size_t device_class, std::size_t size,
                               std::span<const Neighbour> neighbours) {
  ++rows_asked_;
  return rows_beside_.row(*this, model, device_class, size, neighbours);
}

void Problem::sort_devices_into_classes(Division division) {
  devices_.reserve(input_->cluster.devices.size());
  for (const Device& device : input_->cluster.devices) {
    const Division divided = device.mig ? Division::by_mig : Division::by_share;
    if (division == Division::either || division == divided) devices_.push_back(&device);
  }
  const auto by_key = [](const Device* a, const Device* b) { return a->key < b->key; };
  if (!std::is_sorted(devices_.begin(), devices_.end(), by_key)) {
    std::sort(devices_.begin(), devices_.end(), by_key);
  }
  for (std::uint32_t index = 0; index < devices_.size(); ++index) {
    const Device& device = *devices_[index];
    auto found = std::find_if(classes_.begin(), classes_.end(), [&](const DeviceClass& known) {
      return alike(*known.example, device);
    });
    if (found == classes_.end()) {
      DeviceClass added;
      added.example = &device;
      added.profile = &input_->profiles->find(device.type)->second;
      if (input_->interference != nullptr && !device.mig) {  // MIG keeps neighbours apart
        const auto model = input_->interference->find(device.type);
        if (model != input_->interference->end()) added.interference = &model->second;
      }
      for (const Share size : device.sizes) added.sizes.push_back(size.percent);
      describe_gpulets(&added);
      found = classes_.insert(classes_.end(), std::move(added));
    }
    found->devices.push_back(index);
  }
}

void Problem::add_rows(std::size_t device_class) {
  const DeviceClass& added = classes_[device_class];
  first_row_.push_back(rows_.size());
  rows_.reserve(rows_.size() + models_.size() * added.sizes.size());
  for (const ModelDemand* demand : models_) {
    ModelOnClass known;
    known.profile = added.profile->find(demand->name);
    if (known.profile == nullptr) {
      rows_.resize(rows_.size() + added.sizes.size());
    } else {
      const std::uint32_t processes = added.example->processes_per_instance;
      known.memory_mb = known.profile->memory_mb.value_or(0) * processes;
      known.measured = measured_batches(known.profile->latency);
      for (std::size_t size = 0; size < added.sizes.size(); ++size) {
        if (known.memory_mb > added.gpulet_mb[size]) {
          rows_.emplace_back();
        } else {
          add_row(*demand, known.profile->latency, known.measured, Share{added.sizes[size]});
        }
        rows_.back().processes = processes;
      }
    }
    on_class_.push_back(std::move(known));
  }
}

void Problem::add_row(const ModelDemand& demand, const profile::LatencyTable& table,
                      const std::vector<std::uint32_t>& knots, Share size) {
  Row row;
  const double margin = input_->options.margin;
  const double limit_ms = longest_useful_ms(demand.slo_ms);
  const std::uint32_t last = std::min(demand.max_batch, table.largest_batch(size));

  // Looked up at the measured batches only, and linear between them as the table itself is.
  double longest_ms = 0;
  const auto keep = [&](double measured_ms) {
    const double latency_ms = longest_ms = std::max(longest_ms, measured_ms);
    if (!(latency_ms <= limit_ms)) return false;
    latencies_ms_.push_back(latency_ms);
    ++row.largest;
    return true;
  };
  std::uint32_t from = 1;
  double from_ms = table.latency_ms(1, size).value_or(0) * margin;
  bool within = last >= 1 && from_ms > 0 && keep(from_ms);
  for (std::size_t knot = 0; within && from < last; ++knot) {
    const std::uint32_t to = knot < knots.size() ? std::min(knots[knot], last) : last;
    if (to <= from) continue;
    const double to_ms = table.latency_ms(to, size).value_or(0) * margin;
    if (!(to_ms > 0)) break;
    const double slope = (to_ms - from_ms) / (to - from);
    for (std::uint32_t batch = from + 1; within && batch <= to; ++batch) {
      within = keep(batch == to ? to_ms : from_ms + slope * (batch - from));
    }
    from = to;
    from_ms = to_ms;
  }
  rows_.push_back(row);
}

}  // namespace gpulet::schedule
