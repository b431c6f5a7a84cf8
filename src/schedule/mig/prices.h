// Prices of instances, and the lower bounds that follow from them.
//
// Take any prices of the profiles at which no layout costs more than one device. A service then
// costs at least its need times the lowest price of a request on any profile, and the sum over the
// services is a lower bound on the number of devices. The best prices are the dual solution of the
// linear program over layouts. At these prices an efficient deployment wastes nothing, so they also
// guide the tree search. Pure; any thread.
#pragma once

#include <vector>

#include "schedule/mig/deployment_context.h"

namespace gpulet::schedule::mig {

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
