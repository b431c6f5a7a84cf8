// ImageStage: decodes the encoded images of a batch before its executor runs it. The executor loads
// the model with the inputs that its file has, and never sees an encoded image. This process is
// confined, and decoders are attack surface: that is why images are decoded here and nowhere else.
// One thread calls it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/request.h"
#include "gpulet/core/tensor.h"

namespace gpulet::proxy {

struct DecodedBatch {
  std::span<const std::byte> input;  // of the executor; in a buffer of the stage
  std::vector<FailedRow> failed{};   // their images are black
};

class ImageStage {
 public:
  // `longest`: the time after which no further image of a batch is decoded. The smallest are
  // decoded first, so that a few huge ones cost neither the others nor the process, which its
  // backend would take for hung.
  explicit ImageStage(Duration longest = std::chrono::seconds(1)) : longest_(longest) {}

  // What the executor is to load for `model`.
  [[nodiscard]] ModelToLoad load(const ModelToLoad& model);
  // How many threads decode a batch together: the calling one, and others that end with the batch.
  // REQUIRES: at least 1.
  void set_threads(std::size_t threads) { threads_ = threads; }
  // At most this many decoded batches are used at a time, and end in the order in which they began.
  // REQUIRES: at least 1; none is in use.
  void set_depth(std::size_t depth) { buffers_.resize(depth); }

  // Whether the model has an encoded image.
  [[nodiscard]] bool decodes(std::string_view model) const { return models_.contains(model); }
  // Valid until as many further calls as set_depth() says. A request with an image that is not
  // decoded fails alone. Fails with internal if `input` has not the bytes of `count` requests.
  // REQUIRES: decodes(model).
  [[nodiscard]] Result<DecodedBatch> decode(std::string_view model, std::uint32_t count,
                                            std::span<const std::byte> input);

 private:
  // An input of the model.
  struct Input {
    TensorSpec spec;              // as clients send it
    std::size_t given_bytes = 0;  // of one request
    std::size_t bytes = 0;        // of the executor's tensor
  };
  using Inputs = std::vector<Input>;
  // An image of a request.
  struct Image {
    const Input* input = nullptr;
    std::uint32_t row = 0;
    std::span<const std::byte> encoded{};
    std::span<std::byte> tensor{};
    std::uint64_t pixels = 0;  // 0: it has no valid header
  };

  // Copies the other inputs, and returns the images.
  [[nodiscard]] static std::vector<Image> spread(const Inputs& inputs, std::uint32_t count,
                                                 std::span<const std::byte> from,
                                                 std::span<std::byte> to);
  [[nodiscard]] std::vector<FailedRow> decode(std::vector<Image> images) const;
  // In the order of the images.
  [[nodiscard]] std::vector<Status> decode_together(std::span<const Image> images) const;
  [[nodiscard]] static Status decode(const Image& image);

  const Duration longest_;
  std::size_t threads_ = 1;
  std::map<std::string, Inputs, std::less<>> models_;
  std::vector<std::vector<std::byte>> buffers_{1};
  std::size_t next_buffer_ = 0;
};

}  // namespace gpulet::proxy
