// A driver that controls nothing: the proxies of a simulated device take as long as they are told,
// whatever their share. It only holds the contract: a share is 1..100 %, an id is granted once.
#pragma once

#include <memory>

#include "gpulet/partition/driver.h"

namespace gpulet::partition {

[[nodiscard]] std::unique_ptr<PartitionDriver> make_simulated_driver();

}  // namespace gpulet::partition
