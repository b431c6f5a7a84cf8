// The pricing step of `cover`: the most valuable ways to divide and fill one device with the
// remaining rates, at the prices of the relaxation. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "schedule/cover/relaxation.h"
#include "schedule/duty_cycle.h"
#include "schedule/plan_builder.h"
#include "schedule/plan_context.h"

namespace gpulet::schedule {

// The undivided rest of a device: a share and a number of partitions or, under MIG, the rest
// that the layouts leave next to the taken instances. A value.
class DeviceCapacity {
 public:
  // Of a whole device. `known` outlives the object.
  explicit DeviceCapacity(const DeviceClass& known);

  // Whether another gpulet of that size (an index) fits.
  [[nodiscard]] bool holds(std::uint32_t size) const;
  // REQUIRES: holds(size).
  void take(std::uint32_t size);
  // Whether another gpulet is surely the last one.
  [[nodiscard]] bool is_last() const { return taken_.empty() && partitions_ <= 1; }
  // The highest value of the rest, at the relaxation's prices.
  [[nodiscard]] double worth(const Relaxation& relaxation, std::size_t device_class) const;

 private:
  const DeviceClass* known_;
  int free_percent_;
  std::uint32_t partitions_;          // still available
  std::vector<std::uint32_t> taken_;  // of each size; under MIG only
};

// Rates that are not served yet, and the least cost of serving them (Relaxation::cost); both
// parallel to the context's models.
struct Remaining {
  std::vector<double> rates;
  std::vector<double> costs;
};

// Subtracts the portion.
void take_from(Remaining* remaining, const Portion& portion, const PlanContext& context,
               const Relaxation& relaxation);

struct GpuletChoice {
  std::vector<Portion> portions;
  double value = 0;  // reduction of the remaining cost, in devices
};

// Where a gpulet would be.
struct GpuletSite {
  std::uint32_t device_class = 0;
  std::uint32_t size = 0;
  double free_mb = 0;                     // memory for its models; infinite where unlimited
  std::span<const Neighbour> neighbours;  // gpulets that the device already has
};

// Finds the best sets of models and rates for one gpulet. A rate that several gpulets share can be
// moved between them until all of them but one are full. So it only considers sets that take the
// whole rest of some models and, of at most one more, as much as fits next to those.
class GpuletChooser {
 public:
  // Both outlive the object.
  GpuletChooser(PlanContext& context, const Relaxation& relaxation)
      : context_(&context), relaxation_(&relaxation) {}

  // At most `count` choices, the most valuable first.
  [[nodiscard]] const std::vector<GpuletChoice>& best(const GpuletSite& site,
                                                      const Remaining& remaining,
                                                      std::size_t count);

  // The work since the context was created: batch slots in rounds that were tried, plus all curve
  // lookups on the context.
  [[nodiscard]] std::uint64_t work() const { return work_ + context_->curve_lookups(); }
  // From that work on, calls end with what they have found.
  void end_at(std::uint64_t work) { end_ = work; }

 private:
  [[nodiscard]] bool is_over() const { return work_ >= last_work_ || work() >= end_; }

  // A model that the gpulet could take.
  struct Item {
    std::uint32_t model = 0;
    const LatencyCurve* curve = nullptr;
    const LatencyCurve* own_curve = nullptr;  // without other models
    double slo_ms = 0;
    double rate = 0;   // the whole rest of the model
    double cost = 0;   // of that rate
    double share = 0;  // the least fraction of the gpulet's time for that rate
    double memory_mb = 0;
  };
  // A choice under construction: the whole rest of each of some items.
  struct Taken {
    double value = 0;
    double share = 0;
    double free_mb = 0;
  };

  void list_items(const GpuletSite& site, const Remaining& remaining);
  // Replaces the curves by those next to the site's neighbours.
  void slow_items(const GpuletSite& site);
  void search_all(std::size_t first, const Taken& taken);
  void search_cycles(double free_mb);
  void fill_for(double duty_cycle_ms, double free_mb);
  void note_saturating(double free_mb);
  bool take(const Item& item, Taken* taken);
  // Notes the choice with as much of the item as fits next to the slots.
  void note_with_part(const Item& item, const Taken& taken);
  void note(double value, const Portion* part);
  [[nodiscard]] bool has_slot(std::uint32_t model) const;

  PlanContext* context_;
  const Relaxation* relaxation_;
  std::uint64_t work_ = 0;  // batch slots
  // Of the current call:
  std::vector<Item> items_;  // by descending saving per share of the gpulet
  std::vector<BatchSlot> slots_;
  std::vector<GpuletChoice> best_;
  std::vector<std::pair<double, std::uint32_t>> order_;
  std::size_t count_ = 0;
  std::uint64_t last_work_ = 0;  // where a call gives up, without lookups
  std::uint64_t end_ = std::numeric_limits<std::uint64_t>::max();
};

struct DeviceChoice {
  FilledDevice filled;
  Remaining remaining;  // after it
  double value = 0;     // reduction of the remaining cost, in devices
};

// The extent of the search: choices for each gpulet, and incomplete devices that are kept while one
// gpulet after the other is added.
struct SearchWidth {
  std::size_t choices = 1;
  std::size_t devices = 1;
};

class DeviceChooser {
 public:
  // Both outlive the object.
  DeviceChooser(PlanContext& context, const Relaxation& relaxation)
      : context_(&context), relaxation_(&relaxation), gpulets_(context, relaxation) {}

  // At most `count` choices, the most valuable first. Their gpulets keep the rules next to each
  // other, including slowdowns.
  [[nodiscard]] std::vector<DeviceChoice> best(std::uint32_t device_class,
                                               const Remaining& remaining, SearchWidth width,
                                               std::size_t count);

  [[nodiscard]] std::uint64_t work() const { return gpulets_.work(); }
  void end_at(std::uint64_t work) { gpulets_.end_at(work); }

 private:
  // A device that may be divided further.
  struct PartialDevice {
    DeviceChoice choice;
    DeviceCapacity capacity;
    double free_mb = 0;
  };
  // Another gpulet for one of the partial devices.
  struct Extension {
    std::size_t device = 0;
    std::uint32_t size = 0;
    GpuletChoice choice;
    double value = 0;    // of the device with it
    double promise = 0;  // value plus the highest value of the device's rest
  };

  void list_extensions(const std::vector<PartialDevice>& devices, std::size_t at, SearchWidth width,
                       std::vector<Extension>* extensions);
  [[nodiscard]] PartialDevice with(const PartialDevice& device, const Extension& extension) const;
  [[nodiscard]] std::vector<Neighbour> neighbours(const FilledDevice& filled, std::size_t of) const;
  void apply_slowdowns(const Remaining& before, DeviceChoice* choice);

  PlanContext* context_;
  const Relaxation* relaxation_;
  GpuletChooser gpulets_;
};

}  // namespace gpulet::schedule
