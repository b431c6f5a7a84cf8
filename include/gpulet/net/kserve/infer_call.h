// InferCall: an inference of the Open Inference Protocol between its bytes and the engine: what was
// asked, as requests of one row each, and how the answer is to look. The JSON and the gRPC form
// both become one, and both answer from one. Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/core/time.h"
#include "gpulet/net/kserve/model.h"
#include "gpulet/serve/messages.h"

namespace gpulet::net::kserve {

// Where in registered shared memory a tensor lies.
struct RegionSlice {
  std::string region;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct AskedOutput {
  std::size_t index = 0;             // among the model's outputs
  bool binary = false;               // raw after the JSON; gRPC answers raw always
  std::uint32_t classification = 0;  // the so many highest values in place of the tensor; 0: no
  std::optional<RegionSlice> region{};
};

// The id of a request comes back with its answer.
inline constexpr std::size_t kMaxIdBytes = 1024;
// Fails (invalid) where it is longer.
[[nodiscard]] Status check_id(std::string_view id);

struct InferCall {
  std::string model;
  std::string id;  // echoed
  std::uint32_t rows = 1;
  std::vector<serve::InferRequest> requests;  // one a row; tag: the row
  std::vector<AskedOutput> outputs;           // in the order of the answer
};

// One of the model's inputs as a call gives it.
struct GivenInput {
  std::string name;
  DataType type = DataType::fp32;
  std::vector<std::int64_t> shape;  // the batch in front
  Bytes data;                       // raw, row-major, little-endian
};

// Whether such an input fits the model, with so many bytes; its own `data` is not looked at. What
// is to be copied from elsewhere is held against it first. Fails as rows_of does.
[[nodiscard]] Status check_input(const Model& model, const GivenInput& input, std::uint64_t bytes);

// Splits the inputs into the requests of their rows, sharing memory where one input is all there
// is. Fails (invalid) in the words of the protocol's reference server where they do not fit the
// model: an input unknown, missing or twice, a wrong type, shape or size, rows that differ or are
// too many.
[[nodiscard]] Result<std::vector<serve::InferRequest>> rows_of(const Model& model,
                                                               std::vector<GivenInput> inputs,
                                                               Duration timeout);

// A call of these inputs: its model and its rows.
[[nodiscard]] Result<InferCall> call_of(const Model& model, std::vector<GivenInput> inputs,
                                        Duration timeout, std::uint32_t priority = 0);

// An output of all rows, as the answer holds it.
struct AnsweredOutput {
  TensorSpec spec;  // the batch in front; where there are labels the type is BYTES, not spec.type
  Bytes data;       // raw; empty where `labels` hold the answer
  // Classification's answer, row after row: "value:index", or "value:index:label".
  std::vector<std::string> labels{};
};

// The rows' replies, in the order of their rows, as one answer for each output asked for. Fails
// with the first row's failure, or internal where rows differ in shape.
[[nodiscard]] Result<std::vector<AnsweredOutput>> gather(
    const InferCall& call, const Model& model, std::span<const serve::InferReply> replies);

// The binary form of BYTES: each behind its length, 32 bits, little-endian.
[[nodiscard]] std::string lengths_and_texts(const std::vector<std::string>& texts);

}  // namespace gpulet::net::kserve
