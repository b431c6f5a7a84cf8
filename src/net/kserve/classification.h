// The classification extension: the highest values of a tensor and where they stand. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gpulet/core/tensor.h"

namespace gpulet::net::kserve {

// Appends "value:index" of the `most` highest elements of one row, or of all where it has fewer:
// the highest first, equal ones in their order, what is no number last. An index with a name in
// `names` gives "value:index:name".
void append_highest(std::vector<std::string>& labels, DataType type, std::span<const std::byte> row,
                    std::size_t most, std::span<const std::string> names);

}  // namespace gpulet::net::kserve
