// Protobuf messages to and from their wire format, within bounds. Raw tensors are not copied: they
// point into the received message, and are sent from where they are. Private to net/grpc. Pure; any
// thread.
#pragma once

#include <google/protobuf/message.h>

#include <span>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "kserve.pb.h"
#include "net/grpc/call.h"

namespace gpulet::net::grpc_api {

// Parses a message whose objects take at most `most_bytes` of memory: a short message may hold
// millions of empty objects. Fails with invalid or overloaded.
[[nodiscard]] Status parse_message(std::span<const std::byte> bytes, std::size_t most_bytes,
                                   google::protobuf::Message& message);

struct InferMessage {
  inference::ModelInferRequest request;  // without raw_input_contents
  std::vector<Bytes> raw_inputs;
};
// Fails as parse_message(). The number of raw inputs may exceed the limit of tensors by one.
[[nodiscard]] Result<InferMessage> parse_infer(const Bytes& message, std::size_t most_bytes);

// With the message's prefix.
[[nodiscard]] WireMessage wire_of(const google::protobuf::Message& message);

struct InferAnswer {
  inference::ModelInferResponse response;  // without raw_output_contents
  std::vector<Bytes> raw_outputs;
};
[[nodiscard]] WireMessage wire_of(const InferAnswer& answer);
// A message of a stream.
[[nodiscard]] WireMessage wire_of(const InferAnswer& answer, const std::string& error_message);

}  // namespace gpulet::net::grpc_api
