// Any bytes as the message of a gRPC inference: read into a call, and where it is one, answered.
#include <google/protobuf/stubs/logging.h>

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
  inference::ModelInferResponse response;
  const Status written = write_infer(call, model, replies, regions, response);
  if (!written.ok()) return require(!written.message().empty());
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
  inference::ModelInferRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  const std::string id = request.id();
  for (const kserve::Model* const model :
       {&kserve::testing::fuzz_model(), &kserve::testing::fuzz_strings_model()}) {
    const auto call = grpc_api::read_infer(request, *model, kserve::SharedMemory(false));
    if (call.ok()) {
      grpc_api::answer(call.value(), *model, id);
    } else {
      kserve::testing::require(!call.status().message().empty());
    }
  }
  return 0;
}
