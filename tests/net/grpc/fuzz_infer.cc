// Any bytes as the message of a gRPC inference: read into a call, and where it is one, answered.
#include <google/protobuf/stubs/logging.h>

#include "src/net/grpc/message_reader.h"
#include "src/net/grpc/messages.h"
#include "tests/net/kserve/fuzz_inference.h"

namespace gpulet::net::grpc_api {
namespace {

using kserve::testing::require;

void answer(const kserve::InferCall& call, const kserve::Model& model, const std::string& id) {
  require(call.id == id);
  kserve::testing::check_call(call, model);
  const std::vector<InferReply> replies = kserve::testing::fuzz_replies(call, model);
  kserve::SharedMemory regions(false);
  InferAnswer answer;
  const Status written = write_infer(call, model, replies, regions, answer);
  if (!written.ok()) return require(!written.message().empty());
  std::string wire;
  for (const Bytes& piece : wire_of(answer).pieces) {
    const auto bytes = piece.view();
    wire.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  inference::ModelInferResponse response;
  require(response.ParseFromString(wire.substr(kMessagePrefixBytes)));
  require(response.outputs_size() == static_cast<int>(call.outputs.size()));
  require(response.raw_output_contents_size() == response.outputs_size());
  require(response.model_name() == model.name && response.IsInitialized());
}

}  // namespace
}  // namespace gpulet::net::grpc_api

// protobuf tells of every text that is no UTF-8.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpulet::net;
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  const auto read = grpc_api::parse_infer(gpulet::Bytes::own({bytes, bytes + size}), 16U << 20U);
  inference::ModelInferRequest whole;
  const bool parses = whole.ParseFromArray(data, static_cast<int>(size));
  if (!read.ok()) return 0;
  kserve::testing::require(parses);
  const std::string id = read.value().request.id();
  for (const kserve::Model* const model :
       {&kserve::testing::fuzz_model(), &kserve::testing::fuzz_strings_model()}) {
    const auto call = grpc_api::read_infer(read.value(), *model, kserve::SharedMemory(false));
    if (call.ok()) {
      grpc_api::answer(call.value(), *model, id);
    } else {
      kserve::testing::require(!call.status().message().empty());
    }
  }
  return 0;
}
