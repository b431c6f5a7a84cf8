#include "mig/bounds.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gpulet/mig/optimise.h"

namespace gpulet::mig {
namespace {

constexpr int kMostTries = 20'000;   // of a service
constexpr double kSamePrice = 1e-9;  // devices

// The cheapest whole instances for one service: so many of each profile, the dearest by request
// first and the cheapest for all of the rest, while requests at the least price leave hope.
class WholeInstances {
 public:
  WholeInstances(const Problem& problem, const Prices& prices, std::size_t service)
      : problem_(problem), prices_(prices), service_(service) {
    for (std::uint32_t profile = 0; profile < problem.profiles(); ++profile) {
      if (problem.rate(service, profile) > 0) order_.push_back(profile);
    }
    std::stable_sort(order_.begin(), order_.end(), [this](std::uint32_t one, std::uint32_t other) {
      return of_request(one) > of_request(other);
    });
  }

  // Nothing cheaper than what all of it costs by the request was found possible, where it gives up.
  double price() {
    const double need = problem_.need(service_);
    if (order_.empty() || need <= 0) return 0;
    const double by_request = need * prices_.of_request[service_];
    best_ = rest_on_cheapest(need);
    try_from(0, need, 0);
    return tries_ > kMostTries ? by_request : std::max(by_request, best_);
  }

 private:
  [[nodiscard]] double of_request(std::uint32_t profile) const {
    return prices_.of_profile[profile] / problem_.rate(service_, profile);
  }

  [[nodiscard]] double rest_on_cheapest(double rest) const {
    const std::uint32_t cheapest = order_.back();
    const double count = std::ceil(rest / problem_.rate(service_, cheapest) * (1 - 1e-9));
    return std::max(0.0, count) * prices_.of_profile[cheapest];
  }

  void try_from(std::size_t at, double rest, double paid) {
    if (at + 1 == order_.size() || rest <= 0) {
      best_ = std::min(best_, paid + rest_on_cheapest(rest));
      return;
    }
    const std::uint32_t profile = order_[at];
    for (int count = 0; ++tries_ <= kMostTries; ++count) {
      const double left = rest - count * problem_.rate(service_, profile);
      const double sum = paid + count * prices_.of_profile[profile];
      if (sum + std::max(0.0, left) * prices_.of_request[service_] >= best_ - kSamePrice) return;
      try_from(at + 1, left, sum);
      if (left <= 0) return;
    }
  }

  const Problem& problem_;
  const Prices& prices_;
  std::size_t service_;
  std::vector<std::uint32_t> order_;  // profiles that serve it
  double best_ = 0;
  int tries_ = 0;
};

}  // namespace

double bound_of_whole_instances(const Problem& problem, const Prices& prices) {
  double bound = 0;
  for (std::size_t service = 0; service < problem.services(); ++service)
    bound += WholeInstances(problem, prices, service).price();
  return std::max(bound, prices.bound);
}

double lower_bound_without_rules(const Task& task) { return prices_by_slices(Problem(task)).bound; }

double lower_bound(const Task& task) { return best_prices(Problem(task)).bound; }

double lower_bound_of_whole_instances(const Task& task) {
  const Problem problem(task);
  return bound_of_whole_instances(problem, best_prices(problem));
}

}  // namespace gpulet::mig
