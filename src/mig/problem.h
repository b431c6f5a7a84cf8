// A task as the optimiser's algorithms see it. Where an instance begins does not matter to a
// service, so a device is what instances it has of each profile and whom they serve; places are
// found at the end. Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/mig/deployment.h"
#include "gpulet/mig/optimise.h"

namespace gpulet::mig {

inline constexpr std::size_t kMostInstances = partition::MigProfile::kMostStarts;  // of a device

// An instance without a place.
struct Slot {
  std::uint32_t profile = 0;  // index in MigGeometry::profiles()
  std::uint32_t service = 0;

  friend auto operator<=>(const Slot&, const Slot&) = default;
};

// A device without places.
struct Mix {
  std::array<Slot, kMostInstances> slot{};
  std::uint32_t size = 0;

  [[nodiscard]] std::span<const Slot> slots() const { return {slot.data(), size}; }
  [[nodiscard]] std::span<Slot> slots() { return {slot.data(), size}; }
  void add(Slot added) { slot[size++] = added; }
  void drop(std::size_t at);
};

// Maximal layouts that differ in their places only.
struct Shape {
  partition::MigLayout layout;          // one of them, largest instance first
  std::vector<std::uint32_t> profiles;  // of its instances

  [[nodiscard]] std::size_t count(std::uint32_t profile) const;
};

class Problem {
 public:
  explicit Problem(const Task& task);

  [[nodiscard]] std::size_t services() const { return need_.size(); }
  [[nodiscard]] std::size_t profiles() const { return slices_.size(); }
  [[nodiscard]] std::uint32_t slices(std::uint32_t profile) const { return slices_[profile]; }
  [[nodiscard]] std::uint32_t compute_slices() const { return compute_slices_; }
  [[nodiscard]] const std::vector<Shape>& shapes() const { return shapes_; }

  // Requests per second; 0 for a service that no profile serves.
  [[nodiscard]] double need(std::size_t service) const { return need_[service]; }
  [[nodiscard]] const std::vector<double>& needs() const { return need_; }
  [[nodiscard]] double rate(std::size_t service, std::size_t profile) const {
    return rate_[service * slices_.size() + profile];
  }
  [[nodiscard]] double rate(const Slot& slot) const { return rate(slot.service, slot.profile); }
  // The most that one device gives the service alone.
  [[nodiscard]] double rate_of_device(std::size_t service) const { return of_device_[service]; }

  // What the service lacks after `served` more, where it lacked `rest`: 0 where only rounding is
  // missing.
  [[nodiscard]] double rest_after(std::size_t service, double rest, double served) const;
  // Takes from each service's rest what the device gives.
  void serve(const Mix& mix, std::vector<double>& rest) const;

  [[nodiscard]] Deployment place(std::span<const Mix> devices) const;

 private:
  std::vector<std::uint32_t> slices_;
  std::uint32_t compute_slices_ = 0;
  std::vector<Shape> shapes_;
  std::vector<double> need_, rate_, of_device_;
};

// Devices that suffice by a bound on their number, which rounding may have raised.
[[nodiscard]] std::size_t whole_number_of(double bound);

}  // namespace gpulet::mig
