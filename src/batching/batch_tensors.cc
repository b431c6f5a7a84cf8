#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "gpulet/batching/request_queue.h"

namespace gpulet::batching {

namespace {

// For the synthetic requests among others. Empty: there are none.
Bytes zeros_for(std::span<const Request> requests, std::span<const std::size_t> input_sizes) {
  const bool needed = std::any_of(requests.begin(), requests.end(),
                                  [](const Request& request) { return request.synthetic; });
  if (!needed || input_sizes.empty()) return {};
  return Bytes::own(
      std::vector<std::byte>(*std::max_element(input_sizes.begin(), input_sizes.end())));
}

}  // namespace

std::vector<Bytes> gather_inputs(std::span<const Request> requests,
                                 std::span<const std::size_t> input_sizes) {
  std::vector<Bytes> slices;
  slices.reserve(requests.size() * input_sizes.size());
  const Bytes zeros = zeros_for(requests, input_sizes);
  std::size_t offset = 0;
  for (const std::size_t size : input_sizes) {
    for (const Request& request : requests) {
      slices.push_back(request.synthetic ? zeros.slice(0, size)
                                         : request.input.slice(offset, size));
    }
    offset += size;
  }
  return slices;
}

Status check_outputs(const Bytes& outputs, std::size_t count,
                     std::span<const std::size_t> output_sizes) {
  const std::size_t expected =
      count * std::accumulate(output_sizes.begin(), output_sizes.end(), std::size_t{0});
  if (outputs.size() == expected) return {};
  return {
      StatusCode::internal,
      fmt::format("a batch of {} requests returned {} output bytes; the declared outputs of the "
                  "model have {}",
                  count, outputs.size(), expected)};
}

std::vector<Bytes> scatter_outputs(const Bytes& outputs, std::size_t count, std::size_t index,
                                   std::span<const std::size_t> output_sizes) {
  std::vector<Bytes> slices;
  slices.reserve(output_sizes.size());
  std::size_t offset = 0;
  for (const std::size_t size : output_sizes) {
    slices.push_back(outputs.slice(offset + index * size, size));
    offset += count * size;
  }
  return slices;
}

}  // namespace gpulet::batching
