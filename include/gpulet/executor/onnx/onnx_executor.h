// An executor that runs ONNX models with ONNX Runtime, 1.17 or later, through its C interface. The
// library is opened at run time: the file in $GPULET_ONNXRUNTIME, or else libonnxruntime.so.1 or
// libonnxruntime.so, as the dynamic linker finds them (scripts/setup puts one beside the programs).
// No header of the library is needed to use or to build this.
//
// Threads follow the share: OMP_NUM_THREADS inside one operation (1 if it is not set), one
// operation at a time. Threads do not spin between batches, and with OMP_WAIT_POLICY=PASSIVE not at
// all. Inputs and outputs are used in place, unless their bytes are not aligned for their type.
//
// The first dimension of every tensor of the file is the batch, unless the tensors are whole; it
// must have any size, or be 1 where max_batch is 1. The others must fit the declared shapes.
// Tensors are matched by name; a file may have outputs that are not declared, which are not
// computed.
//
// load() runs batches of 1, 2, 4, .. max_batch, as many as fit into 200 ms according to the time of
// the smaller ones, and two sizes at least if max_batch allows two. It fails with not_found (no
// such file), invalid (not ONNX, an operator that the library does not have, weights in other
// files, other tensors than declared, numerics other than the file's) or internal (the library is
// missing or too old, or failed; it does not tell a lack of memory from other failures). A model
// has one variant, 0. depth() is 1.
//
// Warnings of the library go to standard error, up to ten of a process; nothing else does.
//
// On a GPU the library must have the CUDA execution provider. The copies of a batch and its
// computation do not overlap those of another one, and a lost device is not recognised. This path
// has been compiled, but has not run on a GPU.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/executor/executor.h"

namespace gpulet::executor {

// Opens the library, without its telemetry, and does the part of its first use that depends on no
// share and no model. Best effort: load() reports a failure.
void prepare_onnx();

// The version of the library, such as "1.17.0". It is searched in these folders, too, before the
// dynamic linker searches it. Fails with unavailable.
[[nodiscard]] Result<std::string> onnx_runtime_version(
    const std::vector<std::filesystem::path>& folders);

// Fails with unavailable where the library cannot be opened or, `on_gpu`, where it has no CUDA
// execution provider. Whether that provider finds CUDA's libraries and a GPU shows the first model.
[[nodiscard]] Status check_onnx_runtime(bool on_gpu);

// `device` as in GPULET_DEVICE (partition/driver.h): "cpu", "cuda", "cuda:0". Throws
// std::invalid_argument on any other text.
[[nodiscard]] std::unique_ptr<Executor> make_onnx_executor(const std::string& device = "cpu");

// Runs the model's file on the CPU with a sample of its inputs, in a batch of one, and returns the
// shapes of its outputs with all dimensions. Of the outputs only the names count. Fails with
// invalid where the model computes none of the samples.
[[nodiscard]] Result<std::vector<std::vector<std::int64_t>>> find_output_shapes(
    const ModelToLoad& model);

}  // namespace gpulet::executor
