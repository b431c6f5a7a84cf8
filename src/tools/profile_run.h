// Measures L(b, p) of models on a device of this machine, through the real proxy program and the
// real partitions.
//
// One process serves all cells of a model that its share's environment allows: on a CPU those of
// one thread count, under MPS those of one size. After a warm-up a cell's batches run back to back,
// two in flight as in serving, for a given time and at least three of them, and then on, up to five
// times as long, until the median is steady. The latency of the cell is the sustained time per
// batch, which holds what the share really delivers; p99 is that of the times from one answer to
// the next. Batches of a size grow until one takes longer than is useful.
//
// A cell is in doubt where its median did not become steady, where others used the device's cores
// meanwhile (busy_watch.h), or where it stands out from its neighbours (cell_doubts.h). Such cells
// are measured again, twice at most and only while that helps, and the better measurement counts.
// Blocking; one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "gpulet/config/model_config.h"
#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/profile/profile.h"
#include "gpulet/profile/update.h"
#include "tools/measured_device.h"

namespace gpulet::tools {

struct ProfileRunOptions {
  std::vector<config::ModelConfig> models;
  std::filesystem::path proxy;
  std::vector<Share> sizes;            // not empty
  std::vector<std::uint32_t> batches;  // not empty, ascending; those above a model's max_batch are
                                       // skipped, all but the first
  Duration per_cell = std::chrono::seconds(1);
  Duration longest_batch = std::chrono::seconds(2);
};

struct ProfileRun {
  std::map<std::string, profile::ModelProfile, std::less<>> models;
  profile::CellSet asked;        // of those models, measured or not
  std::vector<Status> failures;  // of the models that could not be measured; each names its model
  // What the measurement found: "libtorch", which the proxy had loaded; "sms_by_size", as the
  // device told; clocks.
  profile::Provenance found;
};

// Tells each cell on `progress`; one that is in doubt with a '~'. Fails as a whole with cancelled
// where a signal ended it.
[[nodiscard]] Result<ProfileRun> measure(const ProfileRunOptions& options, MeasuredDevice& device,
                                         std::ostream& progress);

}  // namespace gpulet::tools
