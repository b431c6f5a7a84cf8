// Inference requests of the Open Inference Protocol, between their bytes and the engine:
// parameters, inputs, requested outputs, and tensors in shared memory. The JSON and the gRPC form
// share them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/files.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/tensor.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::net::kserve {

// All functions and values are for any thread, and pure, except SharedMemory.

// A part of a registered shared memory region.
struct RegionSlice {
  std::string region;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// ---- parameters

// A JSON or gRPC value: null, boolean, negative integer, other integer, other number, text. An
// integer beyond 64 bits is a double. Text refers to the bytes that it was parsed from.
using Scalar =
    std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string_view>;

struct RequestParameters {
  Duration timeout{};  // zero: the model's SLO
  bool binary_data_output = false;
  std::uint32_t priority = 0;  // 1 is the highest; 0 or beyond all levels: the model's default
};

struct TensorParameters {
  std::optional<bool> binary_data{};
  std::optional<std::uint64_t> binary_data_size{};
  std::uint32_t classification = 0;
  std::optional<std::string> region{};
  std::optional<std::uint64_t> region_offset{};
  std::optional<std::uint64_t> region_bytes{};
};

// Ignores unknown parameters. Fails (invalid) for a wrong type or range, or an unsupported one.
[[nodiscard]] Status take_parameter(RequestParameters& parameters, std::string_view name,
                                    const Scalar& value);
[[nodiscard]] Status take_parameter(TensorParameters& parameters, std::string_view name,
                                    const Scalar& value);

// Empty for a tensor outside shared memory. Fails (invalid) for an incomplete region.
[[nodiscard]] Result<std::optional<RegionSlice>> region_of(const TensorParameters& parameters);

// ---- requests

struct RequestedOutput {
  std::size_t index = 0;             // among the model's outputs
  bool binary = false;               // raw, behind the JSON; gRPC is always raw
  std::uint32_t classification = 0;  // this many highest values; 0: the tensor
  std::optional<RegionSlice> region{};
};

struct NamedOutput {
  std::string name;
  TensorParameters parameters{};
};
// The outputs of a request, in order; all of the model's where it names none. `binary`: the default
// form. Fails (invalid) for an unknown or repeated output, or JSON of one without a JSON form.
[[nodiscard]] Result<std::vector<RequestedOutput>> requested_outputs(
    std::span<const NamedOutput> outputs, bool binary, const Model& model);

inline constexpr std::size_t kMaxIdBytes = 1024;
// Checks the length of a request id. Fails with invalid.
[[nodiscard]] Status check_id(std::string_view id);

struct InferCall {
  std::string model;
  std::string id;  // echoed in the response
  std::uint32_t rows = 1;
  std::vector<InferRequest> requests;    // one per row; the tag is the row
  std::vector<RequestedOutput> outputs;  // in the order of the response
};

// An input tensor of a request.
struct GivenInput {
  std::string name;
  DataType type = DataType::fp32;
  std::vector<std::int64_t> shape;  // batch first, unless the model has none
  Bytes data;                       // raw, row-major, little-endian; of BYTES: its elements
};

// Checks an input of `bytes` bytes against the model without looking at input.data, so that a
// mismatch is found before the data are copied. BYTES may have fewer. Fails as call_of.
[[nodiscard]] Status check_input(const Model& model, const GivenInput& input, std::uint64_t bytes);

// A call with one request per row of the inputs; its id and outputs are left to the caller. A
// single input is shared, not copied. Fails (invalid), in the words of the reference server, for an
// unknown, missing or repeated input, a wrong type, shape or size, or differing or too many rows.
[[nodiscard]] Result<InferCall> call_of(const Model& model, std::vector<GivenInput> inputs,
                                        Duration timeout, std::uint32_t priority = 0);

// ---- responses

// An output of all rows.
struct ResponseOutput {
  // Batch first, unless it is whole; without max_bytes. Where there are labels, the type is BYTES.
  TensorSpec spec;
  Bytes data;  // raw; empty where `labels` replace the tensor
  // The classification, row by row: "value:index" or "value:index:label".
  std::vector<std::string> labels{};
};

// Combines the rows' replies. Fails with the first row's failure, or internal if shapes differ.
[[nodiscard]] Result<std::vector<ResponseOutput>> gather(const InferCall& call, const Model& model,
                                                         std::span<const InferReply> replies);

// The binary form of BYTES: each text behind its length, 32 bits little-endian.
[[nodiscard]] std::string lengths_and_texts(const std::vector<std::string>& texts);

// ---- shared memory

struct RegionInfo {
  std::string name;
  std::string key;  // for shm_open
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// CUDA shared memory is not supported: the error of registering a region, with alternatives, and of
// requesting the status of one. Clients may request the status of all regions and unregister all,
// as some do when they start.
[[nodiscard]] std::string cuda_memory_refusal(const std::string& region);
[[nodiscard]] Status unknown_cuda_region(const std::string& region);

// Regions of POSIX shared memory that clients registered (the system_shared_memory extension). Off
// unless configured: a client that registers regions makes this process read and write any shared
// memory of its user.
//
// Regions are accessed by system calls, never mapped: if a client shrinks its memory the call
// fails, where a mapping would kill the process. Blocks only for these calls. Any thread: a call
// that has found its region goes on with it, although the region is removed meanwhile.
class SharedMemory {
 public:
  // Not enabled: every call fails with unavailable and the configuration key.
  explicit SharedMemory(bool enabled) : enabled_(enabled) {}

  // Fails (invalid) for a name in use, missing memory, a range beyond its end, too many regions.
  [[nodiscard]] Status add(const RegionInfo& region);
  // Ignores unknown names. Empty: removes all.
  void remove(const std::string& name);
  [[nodiscard]] std::vector<RegionInfo> regions() const;
  [[nodiscard]] bool enabled() const { return enabled_; }

  // Returns a copy, because the client may write to the region at any time. Fails (invalid) for an
  // unknown region or a range beyond its end.
  [[nodiscard]] Result<Bytes> read(const RegionSlice& slice) const;
  // Also fails if the slice is smaller than the data or the memory is read-only.
  [[nodiscard]] Status write(const RegionSlice& slice, const Bytes& data);

 private:
  struct Region {
    RegionInfo info;
    FileDescriptor memory;
  };
  [[nodiscard]] Status check_enabled() const;
  using RegionPointer = std::shared_ptr<const Region>;
  [[nodiscard]] Result<RegionPointer> find(const RegionSlice& slice) const;

  const bool enabled_;
  mutable std::mutex mutex_;  // guards regions_
  std::map<std::string, RegionPointer, std::less<>> regions_;
};

}  // namespace gpulet::net::kserve
