#include "proxy/image_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>
#include <utility>

#include "gpulet/image/image.h"

namespace gpulet::proxy {
namespace {

// The image of one request. Empty: its slot holds none.
std::span<const std::byte> image_in(std::span<const std::byte> slot) {
  const auto elements = elements_in(slot, 1);
  if (!elements) return {};
  return std::as_bytes(std::span(elements->front()));
}

std::uint64_t pixels_of(std::span<const std::byte> encoded) {
  const Result<image::Header> header = image::read_header(encoded);
  return header.ok() ? std::uint64_t{header.value().width} * header.value().height : 0;
}

// The first failure of a request is the one that its client learns.
void add_failure(std::vector<FailedRow>& failed, std::uint32_t row, Status why) {
  const auto same = [row](const FailedRow& one) { return one.row == row; };
  if (std::none_of(failed.begin(), failed.end(), same)) failed.push_back({row, std::move(why)});
}

}  // namespace

ModelToLoad ImageStage::load(const ModelToLoad& model) {
  models_.erase(model.name);
  const bool encoded = std::any_of(model.inputs.begin(), model.inputs.end(),
                                   [](const TensorSpec& input) { return input.image.has_value(); });
  if (!encoded) return model;
  ModelToLoad inner = model;
  for (TensorSpec& input : inner.inputs) {
    if (input.image) input = model_input(input);  // the executor converts the others
  }
  Inputs inputs;
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    const Result<std::size_t> given = byte_size(model.inputs[i]);
    const Result<std::size_t> bytes = byte_size(inner.inputs[i]);
    if (!given.ok() || !bytes.ok()) return inner;  // the executor refuses it
    inputs.push_back({model.inputs[i], given.value(), bytes.value()});
  }
  models_.emplace(model.name, std::move(inputs));
  return inner;
}

Result<DecodedBatch> ImageStage::decode(std::string_view model, std::uint32_t count,
                                        std::span<const std::byte> input) {
  const Inputs& inputs = models_.find(model)->second;
  std::size_t given = 0;
  std::size_t bytes = 0;
  for (const Input& one : inputs) {
    given += one.given_bytes * count;
    bytes += one.bytes * count;
  }
  if (input.size() != given) {
    return Status(StatusCode::internal,
                  fmt::format("a batch of {} requests must have {} bytes; has {}", count, given,
                              input.size()));
  }
  std::vector<std::byte>& buffer = buffers_[next_buffer_];
  next_buffer_ = (next_buffer_ + 1) % buffers_.size();
  buffer.resize(bytes);
  std::vector<FailedRow> failed = decode(spread(inputs, count, input, buffer));
  return DecodedBatch{buffer, std::move(failed)};
}

std::vector<ImageStage::Image> ImageStage::spread(const Inputs& inputs, std::uint32_t count,
                                                  std::span<const std::byte> from,
                                                  std::span<std::byte> to) {
  std::vector<Image> images;
  for (const Input& one : inputs) {
    for (std::uint32_t row = 0; row < count; ++row) {
      const auto slot = from.first(one.given_bytes);
      const auto tensor = to.first(one.bytes);
      from = from.subspan(one.given_bytes);
      to = to.subspan(one.bytes);
      if (one.spec.image) {
        const auto encoded = image_in(slot);
        images.push_back({&one, row, encoded, tensor, pixels_of(encoded)});
      } else {
        std::copy(slot.begin(), slot.end(), tensor.begin());
      }
    }
  }
  return images;
}

Status ImageStage::decode(const Image& image) {
  Status done;
  try {
    done = image::decode_to_tensor(image.encoded, *image.input->spec.image, image.tensor);
  } catch (const std::bad_alloc&) {
    done = {StatusCode::overloaded, "no memory is left to decode the image; send a smaller one"};
  }
  return done.within("input '" + image.input->spec.name + "'");
}

std::vector<Status> ImageStage::decode_together(std::span<const Image> images) const {
  const auto begun = std::chrono::steady_clock::now();
  const Status late(StatusCode::overloaded,
                    "other images of its batch took too long; send a smaller image, or try again");
  std::vector<Status> results(images.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < images.size(); i = next++) {
      const bool has_time = i == 0 || std::chrono::steady_clock::now() - begun <= longest_;
      results[i] = has_time ? decode(images[i]) : late;
    }
  };
  std::vector<std::jthread> others;  // end with this block
  while (others.size() + 1 < std::min(threads_, images.size())) others.emplace_back(work);
  work();
  others.clear();
  return results;
}

std::vector<FailedRow> ImageStage::decode(std::vector<Image> images) const {
  std::stable_sort(images.begin(), images.end(),
                   [](const Image& one, const Image& other) { return one.pixels < other.pixels; });
  const std::vector<Status> results = decode_together(images);
  std::vector<FailedRow> failed;
  for (std::size_t i = 0; i < images.size(); ++i) {
    if (results[i].ok()) continue;
    // What an earlier batch left here belongs to other clients.
    std::fill(images[i].tensor.begin(), images[i].tensor.end(), std::byte{0});
    add_failure(failed, images[i].row, results[i]);
  }
  return failed;
}

}  // namespace gpulet::proxy
