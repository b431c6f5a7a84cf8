// Any bytes, decoded as an image: pixels, or a Status that calls them invalid. The header and the
// image agree.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "gpulet/image/image.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpulet;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = image::read_header(bytes);
  if (!header.ok() && header.status().code() != StatusCode::invalid) std::abort();
  const auto decoded = image::decode(bytes, 1);
  if (!decoded.ok()) {
    if (decoded.status().code() != StatusCode::invalid) std::abort();
    return 0;
  }
  const image::RgbImage& picture = decoded.value();
  if (!header.ok()) std::abort();
  if (std::size_t{picture.width} * picture.height !=
      std::size_t{header.value().width} * header.value().height)
    std::abort();
  image::Preprocessing preprocessing;
  preprocessing.width = 1 + size % 40;
  preprocessing.height = 1 + size % 23;
  std::vector<std::byte> tensor(std::size_t{preprocessing.width} * preprocessing.height *
                                image::kChannels * sizeof(float));
  image::to_tensor(picture, preprocessing, tensor);
  return 0;
}
