// Loading: from a file to the network that serves, in the fastest form that answers alike.
// Functions throw what LibTorch throws.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>

#include "executor/torch/model.h"

namespace gpulet::executor {

// How batches are run here.
struct Place {
  c10::Device device;
  int threads = 1;  // inside one operation
};

// Reads the file in the form that `request.form` names, or finds one, and runs a batch of one.
// Fails as Executor::load.
[[nodiscard]] Result<LoadedModel> load_model(const ModelToLoad& request, const Place& place);

// What Executor::load's form says beside how the network was rewritten: what it computed in, and
// how far it then was from the file.
[[nodiscard]] double error_of_form(std::uint32_t form);

// Runs batches of 1, 2, 4, .. max_batch: the first `least` of these, and on while the next one,
// taken to cost twice the last, fits the budget. Returns the largest that ran and the bytes of
// tensors on the CPU that one of max_batch would take.
struct Warmed {
  std::uint32_t largest = 1;
  std::size_t bytes = 0;
};
[[nodiscard]] Result<Warmed> warm_up(const LoadedModel& model, std::uint32_t least,
                                     std::uint32_t max_batch, const c10::Device& device);

}  // namespace gpulet::executor
