#include "serve/adapt/slow_devices.h"

#include <algorithm>

namespace gpulet::serve {
namespace {

// A slow device is as fast as the others again below this slowness.
constexpr double kStaysSlow = 1.08;

// The lower of the two in the middle: of two devices, the fast one is the standard.
double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

using FactorsOfDevices = std::map<schedule::DeviceKey, std::vector<double>>;

// The factors are of one model. Adds each one divided by their median, by device. A model on a
// single device cannot be compared and adds nothing.
void compare(std::vector<ObservedFactor>::const_iterator begin,
             std::vector<ObservedFactor>::const_iterator end, FactorsOfDevices& relative) {
  std::map<schedule::DeviceKey, double> of_device;  // the least, over its sizes
  for (auto one = begin; one != end; ++one) {
    const auto [at, is_new] = of_device.try_emplace(one->place.device, one->factor);
    if (!is_new) at->second = std::min(at->second, one->factor);
  }
  if (of_device.size() < 2) return;
  std::vector<double> factors;
  factors.reserve(of_device.size());
  for (const auto& [device, factor] : of_device) factors.push_back(factor);
  const double usual = lower_median(std::move(factors));
  for (const auto& [device, factor] : of_device) relative[device].push_back(factor / usual);
}

// For each device, how many times longer each of its models takes than elsewhere.
FactorsOfDevices relative_factors(const std::vector<ObservedFactor>& factors) {
  FactorsOfDevices relative;
  const auto same_model = [](const ObservedPlace& a, const ObservedPlace& b) {
    return a.device_type == b.device_type && a.model == b.model;
  };
  for (auto model = factors.begin(); model != factors.end();) {
    const auto model_end = std::find_if(model, factors.end(), [&](const ObservedFactor& one) {
      return !same_model(one.place, model->place);
    });
    FactorsOfDevices at_sizes;
    for (auto size = model; size != model_end;) {
      const auto size_end = std::find_if(size, model_end, [&](const ObservedFactor& one) {
        return one.place.size != size->place.size;
      });
      compare(size, size_end, at_sizes);
      size = size_end;
    }
    // No two devices have the model at the same size: a profile is rarely wrong at one size only.
    if (at_sizes.empty()) compare(model, model_end, at_sizes);
    for (const auto& [device, values] : at_sizes) {
      std::vector<double>& all = relative[device];
      all.insert(all.end(), values.begin(), values.end());
    }
    model = model_end;
  }
  return relative;
}

}  // namespace

double slowness_of(const SlowDevices& slow, const schedule::DeviceKey& device) {
  const auto found = slow.find(device);
  return found == slow.end() ? 1 : found->second;
}

SlowDevices find_slow_devices(const std::vector<ObservedFactor>& factors,
                              const SlowDevices& before) {
  SlowDevices slow;
  for (auto& [device, relative] : relative_factors(factors)) {
    const double least = before.contains(device) ? kStaysSlow : kLeastSlowness;
    if (*std::min_element(relative.begin(), relative.end()) >= least)
      slow.emplace(device, lower_median(std::move(relative)));
    else
      slow.emplace(device, 1);
  }
  FactorsOfDevices alone;  // of devices that were slow, and whose models run nowhere else
  for (const ObservedFactor& one : factors) {
    if (before.contains(one.place.device) && !slow.contains(one.place.device))
      alone[one.place.device].push_back(one.factor);
  }
  for (auto& [device, values] : alone) {
    const double now = std::min(before.at(device), lower_median(std::move(values)));
    if (now >= kStaysSlow) slow.emplace(device, now);
  }
  std::erase_if(slow, [](const auto& one) { return one.second == 1; });
  return slow;
}

}  // namespace gpulet::serve
