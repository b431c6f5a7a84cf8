#include "executor/torch/library.h"

#include "executor/torch/lane.h"
#include "executor/torch/process.h"

namespace {

using namespace gpulet::executor;

constexpr boundary::Makers kMakers{
    .prepare = prepare_process,
    .make_executor = [](const std::string& device) { return make_lane(device); },
    .make_shared_device = make_device_of_lanes};

}  // namespace

const boundary::Boundary* gpulet_torch_boundary() {
  static const boundary::Boundary boundary = boundary::boundary_to(kMakers);
  return &boundary;
}
