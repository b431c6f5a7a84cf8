// A task as the optimiser's algorithms see it. A service does not depend on where its instance
// starts, so a device is a mix of profiles with their services; starts are assigned at the end.
// Plain values; any thread.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/schedule/mig.h"

namespace gpulet::schedule::mig {

inline constexpr std::size_t kMostInstances = partition::MigProfile::kMostStarts;  // per device

// An instance without a start.
struct UnplacedInstance {
  std::uint32_t profile = 0;  // index in MigGeometry::profiles()
  std::uint32_t service = 0;

  friend auto operator<=>(const UnplacedInstance&, const UnplacedInstance&) = default;
};

// A device whose instances have no start yet.
struct InstanceMix {
  std::array<UnplacedInstance, kMostInstances> items{};
  std::uint32_t size = 0;

  [[nodiscard]] std::span<const UnplacedInstance> instances() const { return {items.data(), size}; }
  [[nodiscard]] std::span<UnplacedInstance> instances() { return {items.data(), size}; }
  void add(UnplacedInstance added) { items[size++] = added; }
  void remove(std::size_t at);
};

// All maximal layouts with the same profiles.
struct LayoutShape {
  partition::MigLayout layout;          // one of them, largest instance first
  std::vector<std::uint32_t> profiles;  // of its instances

  [[nodiscard]] std::size_t count(std::uint32_t profile) const;
};

class DeploymentContext {
 public:
  explicit DeploymentContext(const DeploymentTask& task);

  [[nodiscard]] std::size_t services() const { return need_.size(); }
  [[nodiscard]] std::size_t profiles() const { return slices_.size(); }
  [[nodiscard]] std::uint32_t slices(std::uint32_t profile) const { return slices_[profile]; }
  [[nodiscard]] std::uint32_t compute_slices() const { return compute_slices_; }
  [[nodiscard]] const std::vector<LayoutShape>& shapes() const { return shapes_; }

  // Requests per second; 0 for a service that no profile serves.
  [[nodiscard]] double need(std::size_t service) const { return need_[service]; }
  [[nodiscard]] const std::vector<double>& needs() const { return need_; }
  [[nodiscard]] double rate(std::size_t service, std::size_t profile) const {
    return rate_[service * slices_.size() + profile];
  }
  [[nodiscard]] double rate(const UnplacedInstance& instance) const {
    return rate(instance.service, instance.profile);
  }
  // The maximum rate of the service on a device of its own.
  [[nodiscard]] double device_rate(std::size_t service) const { return device_rate_[service]; }

  // The unmet need of the service after it gains `served`: 0 where only rounding is left.
  [[nodiscard]] double unmet_after(std::size_t service, double unmet, double served) const;
  // Subtracts the device's rates from the unmet needs.
  void serve(const InstanceMix& mix, std::vector<double>& unmet) const;

  [[nodiscard]] Deployment place(std::span<const InstanceMix> devices) const;

 private:
  std::vector<std::uint32_t> slices_;
  std::uint32_t compute_slices_ = 0;
  std::vector<LayoutShape> shapes_;
  std::vector<double> need_, rate_, device_rate_;
};

// The smallest whole number of devices that a lower bound allows. Tolerates rounding of the bound.
[[nodiscard]] std::size_t whole_devices_for(double bound);

// ---- Prices of instances, and the lower bounds that follow from them (prices.cc)
//
// Take any prices of the profiles at which no layout costs more than one device. A service then
// costs at least its need times the lowest price of a request on any profile, and the sum over the
// services is a lower bound on the number of devices. The best prices are the dual solution of the
// linear program over layouts. At these prices an efficient deployment wastes nothing, so they also
// guide the tree search.
struct Prices {
  std::vector<double> per_profile;  // in devices; the instances of a device cost at most 1 in total
  std::vector<double> per_request;  // per request per second of each service; 0: not served
  double bound = 0;                 // in devices: the price of all needs
};

// Prices in proportion to compute slices: the bound that ignores MIG's rules.
[[nodiscard]] Prices prices_by_slices(const DeploymentContext& context);
// The prices with the highest bound, up to rounding. Rounding never invalidates the bound.
[[nodiscard]] Prices best_prices(const DeploymentContext& context);

// The total price of a device's instances.
[[nodiscard]] double price_of(const InstanceMix& mix, const Prices& prices);

// lower_bound_of_whole_instances() for given prices, in devices; at least the prices' own bound.
[[nodiscard]] double bound_of_whole_instances(const DeploymentContext& context,
                                              const Prices& prices);

}  // namespace gpulet::schedule::mig
