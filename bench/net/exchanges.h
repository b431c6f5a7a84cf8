// The protocols that the driver can speak.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/net/driver.h"
#include "gpulet/core/tensor.h"

namespace gpulet::bench {

// With bench_echo_server. A message is its length in four little-endian bytes, then that many
// bytes, which start with the slot.
class EchoExchange : public Exchange {
 public:
  // REQUIRES: 4 <= message_bytes.
  explicit EchoExchange(std::size_t message_bytes);

  [[nodiscard]] Request request(std::uint32_t slot) const override;
  [[nodiscard]] Result<std::optional<Reply>> reply(std::span<const std::byte> bytes) const override;

 private:
  std::size_t message_bytes_;
  Bytes payload_;
};

// With a frontend: InferRequests for one model.
class InferExchange : public Exchange {
 public:
  // Payloads are zeros of the inputs' size. REQUIRES: byte_size(inputs) is ok.
  InferExchange(std::string model, std::vector<TensorSpec> inputs, Duration timeout);

  [[nodiscard]] Request request(std::uint32_t slot) const override;
  [[nodiscard]] Result<std::optional<Reply>> reply(std::span<const std::byte> bytes) const override;

 private:
  std::string model_;
  std::vector<TensorSpec> inputs_;
  Duration timeout_;
  Bytes payload_;
};

// Equal POSTs over HTTP/1.1 on a persistent connection. A reply does not identify its request, so
// the depth must be one.
class HttpExchange : public Exchange {
 public:
  // With bench_http_echo_server and bench_http_server.
  [[nodiscard]] static HttpExchange echo(std::size_t body_bytes);
  // With a frontend: the model's only input as a binary tensor, all outputs the same way.
  // REQUIRES: byte_size(input) is ok.
  [[nodiscard]] static HttpExchange infer(const std::string& model, const TensorSpec& input,
                                          Duration timeout);

  [[nodiscard]] Request request(std::uint32_t slot) const override;
  [[nodiscard]] Result<std::optional<Reply>> reply(std::span<const std::byte> bytes) const override;

 private:
  HttpExchange(std::string head, std::size_t payload_bytes);

  std::string head_;  // and the JSON before a tensor
  Bytes payload_;
};

}  // namespace gpulet::bench
