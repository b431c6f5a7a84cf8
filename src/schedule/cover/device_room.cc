#include "schedule/cover/device_room.h"

#include <algorithm>

namespace gpulet::schedule {

DeviceRoom::DeviceRoom(const DeviceClass& known)
    : known_(&known),
      free_percent_(kWholeDevice.percent),
      partitions_(known.example->max_partitions) {
  if (!known.divisions.empty()) taken_.assign(known.sizes.size(), 0);
}

bool DeviceRoom::holds(std::uint32_t size) const {
  if (taken_.empty()) return partitions_ > 0 && known_->sizes[size] <= free_percent_;
  return std::any_of(known_->divisions.begin(), known_->divisions.end(),
                     [&](const std::vector<std::uint32_t>& division) {
                       for (std::uint32_t at = 0; at < taken_.size(); ++at) {
                         if (taken_[at] + (at == size ? 1U : 0U) > division[at]) return false;
                       }
                       return true;
                     });
}

void DeviceRoom::take(std::uint32_t size) {
  free_percent_ -= known_->sizes[size];
  --partitions_;
  if (!taken_.empty()) ++taken_[size];
}

bool DeviceRoom::is_last() const { return taken_.empty() && partitions_ <= 1; }

double DeviceRoom::worth(const Relaxation& relaxation, std::size_t device_class) const {
  return taken_.empty() ? relaxation.price_of_share(device_class, partitions_, free_percent_)
                        : relaxation.price_beside(device_class, taken_);
}

}  // namespace gpulet::schedule
