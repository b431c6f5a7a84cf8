// What instances are worth. For any prices of the profiles at which no layout costs more than one
// device, a service costs at least its need times the least price of a request, whatever serves it,
// and the sum over the services is a lower bound on the devices. The best such prices are the dual
// of the linear program over layouts: at them an efficient deployment wastes nothing, which makes
// them the guide of the search. Pure; any thread.
#pragma once

#include <vector>

#include "mig/problem.h"

namespace gpulet::mig {

struct Prices {
  std::vector<double> of_profile;  // in devices; a device's instances cost at most 1 together
  std::vector<double> of_request;  // per request per second of each service; 0: it is not served
  double bound = 0;                // devices: all needs at these prices
};

// By slices of the whole: the bound that ignores MIG's rules.
[[nodiscard]] Prices prices_by_slices(const Problem& problem);
// Those with the highest bound, but for rounding: the bound holds anyhow.
[[nodiscard]] Prices best_prices(const Problem& problem);

}  // namespace gpulet::mig
