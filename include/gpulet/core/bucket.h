// Dynamic dimensions: a model may leave one dimension of some of its tensors to each request, such
// as the number of tokens. All of these dimensions have the same size in one request, its length.
//
// Tensors of batches have fixed shapes. A dynamic model is therefore served as several models with
// fixed shapes, its buckets: "bert@64" takes requests of "bert" with up to 64 tokens. Their inputs
// are padded to the bucket's length, and their outputs are cut back to the request's. Pure values
// and functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet {

// The size of a dynamic dimension in a declared shape. A tensor has at most one.
inline constexpr std::int64_t kAnyLength = -1;
inline constexpr std::size_t kMostBuckets = 128;  // of one model

struct Bucket {
  std::string model;        // as clients name it
  std::int64_t length = 1;  // of the bucket's tensors
  // As declared; at least one input has a dynamic dimension. Outputs whose size does not follow the
  // length have that of this bucket.
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  // By input: the bytes of the element that fills it up. Empty: requests are not padded, and must
  // have the bucket's length.
  std::vector<std::vector<std::byte>> padding{};

  friend bool operator==(const Bucket&, const Bucket&) = default;
};

// "bert@64". No name of a models file has an '@'.
[[nodiscard]] std::string bucket_name(std::string_view model, std::int64_t length);
// "bert" for the name of a bucket, and the name itself for that of a model.
[[nodiscard]] std::string_view client_name(std::string_view name);

[[nodiscard]] bool is_dynamic(const TensorSpec& spec);
[[nodiscard]] bool is_dynamic(const std::vector<TensorSpec>& specs);
// The tensors with that length in place of dynamic dimensions.
[[nodiscard]] std::vector<TensorSpec> with_length(std::vector<TensorSpec> specs,
                                                  std::int64_t length);

// The length of a request with these inputs for a model that declares those. Fails (invalid) where
// a shape does not fit or lengths differ. REQUIRES: as many are given as declared.
[[nodiscard]] Result<std::int64_t> length_of(const std::vector<TensorSpec>& declared,
                                             const std::vector<TensorSpec>& given);

// The bytes of one element of that value. Empty: the tensor's type cannot hold it. FP16 and BF16
// hold zero only.
[[nodiscard]] std::optional<std::vector<std::byte>> element_of(const TensorSpec& spec,
                                                               double value);

// The inputs of a request of that length, filled up to the bucket's. Shares them where they have
// it. REQUIRES: `inputs` has the bytes of that length, which is at most the bucket's.
[[nodiscard]] Bytes padded(const Bucket& bucket, const Bytes& inputs, std::int64_t length);

// The outputs of the bucket, cut to a request's length. Shares them where no copy is needed. Fails
// with internal where they are not the bucket's.
[[nodiscard]] Result<std::vector<Bytes>> cut(const Bucket& bucket, std::vector<Bytes> outputs,
                                             std::int64_t length);

}  // namespace gpulet
