#include "mig/problem.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace gpulet::mig {
namespace {

// Far below what faults() forgives, far above what sums of rates are off by.
constexpr double kRounding = 1e-10;

std::vector<Shape> shapes_of(const partition::MigGeometry& geometry) {
  const auto profiles = geometry.profiles();
  std::vector<Shape> shapes;
  for (partition::MigLayout& layout : geometry.maximal_layouts()) {
    std::sort(layout.begin(), layout.end(), [](const auto& a, const auto& b) {
      return a.slices != b.slices ? a.slices > b.slices : a.start < b.start;
    });
    Shape shape;
    for (const partition::MigInstance& instance : layout) {
      const auto profile = std::find_if(
          profiles.begin(), profiles.end(),
          [&](const partition::MigProfile& known) { return known.slices == instance.slices; });
      shape.profiles.push_back(static_cast<std::uint32_t>(profile - profiles.begin()));
    }
    const bool known = std::any_of(shapes.begin(), shapes.end(), [&](const Shape& other) {
      return other.profiles == shape.profiles;
    });
    if (known) continue;
    shape.layout = std::move(layout);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

// The layout of some shape that has all these instances.
Configuration place_one(const Mix& mix, const std::vector<Shape>& shapes) {
  for (const Shape& shape : shapes) {
    if (shape.layout.size() < mix.size) continue;
    std::vector<bool> taken(shape.layout.size(), false);
    Configuration placed;
    for (const Slot& slot : mix.slots()) {
      std::size_t at = 0;
      while (at < taken.size() && (taken[at] || shape.profiles[at] != slot.profile)) ++at;
      if (at == taken.size()) break;
      taken[at] = true;
      placed.push_back({shape.layout[at], slot.service});
    }
    if (placed.size() < mix.size) continue;
    std::sort(placed.begin(), placed.end(),
              [](const Placed& a, const Placed& b) { return a.instance.start < b.instance.start; });
    return placed;
  }
  throw std::logic_error("a device that fits no layout");
}

}  // namespace

void Mix::drop(std::size_t at) {
  for (; at + 1 < size; ++at) slot[at] = slot[at + 1];
  --size;
}

std::size_t Shape::count(std::uint32_t profile) const {
  return static_cast<std::size_t>(std::count(profiles.begin(), profiles.end(), profile));
}

Problem::Problem(const Task& task)
    : compute_slices_(task.geometry.compute_slices()), shapes_(shapes_of(task.geometry)) {
  for (const partition::MigProfile& profile : task.geometry.profiles())
    slices_.push_back(profile.slices);
  for (const Service& service : task.services) {
    rate_.insert(rate_.end(), service.rate_on.begin(), service.rate_on.end());
    rate_.resize((need_.size() + 1) * slices_.size(), 0);
    need_.push_back(0);
    double most = 0;
    for (const Shape& shape : shapes_) {
      double sum = 0;
      for (const std::uint32_t profile : shape.profiles) sum += rate(need_.size() - 1, profile);
      most = std::max(most, sum);
    }
    of_device_.push_back(most);
    if (most > 0) need_.back() = service.need;
  }
}

double Problem::rest_after(std::size_t service, double rest, double served) const {
  rest -= served;
  return rest <= need_[service] * kRounding ? 0 : rest;
}

void Problem::serve(const Mix& mix, std::vector<double>& rest) const {
  for (const Slot& slot : mix.slots())
    rest[slot.service] = rest_after(slot.service, rest[slot.service], rate(slot));
}

Deployment Problem::place(std::span<const Mix> devices) const {
  Deployment deployment;
  for (const Mix& mix : devices) deployment.devices.push_back(place_one(mix, shapes_));
  return deployment;
}

std::size_t whole_number_of(double bound) {
  return static_cast<std::size_t>(std::ceil(std::max(0.0, bound - 1e-6)));
}

}  // namespace gpulet::mig
