// bench_grpc_load: as bench_net_load, over gRPC: drives bench_grpc_echo_server or a frontend, and
// prints the same line of JSON. Each thread has a completion queue and its part of the connections.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/net/record.h"
#include "bench/support/options.h"
#include "kserve.grpc.pb.h"

namespace {

using namespace gpulet;
using Stub = inference::GRPCInferenceService::Stub;

struct Call {
  Stub* stub = nullptr;
  bench::Record::Clock::time_point asked;
  std::unique_ptr<grpc::ClientContext> context;
  inference::ModelInferResponse response;
  grpc::Status status;
};

inference::ModelInferRequest request_of(const std::string& model, const std::string& input,
                                        std::int64_t bytes, double timeout_ms) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  auto& tensor = *request.add_inputs();
  tensor.set_name(input);
  tensor.set_datatype("FP32");
  tensor.add_shape(1);
  tensor.add_shape(bytes / 4);
  request.add_raw_input_contents(std::string(static_cast<std::size_t>(bytes), '\0'));
  if (timeout_ms > 0) {
    (*request.mutable_parameters())["timeout"].set_int64_param(
        static_cast<std::int64_t>(timeout_ms * 1000));  // microseconds
  }
  return request;
}

void ask(Call& call, const inference::ModelInferRequest& request, grpc::CompletionQueue& queue) {
  call.context = std::make_unique<grpc::ClientContext>();
  call.response.Clear();
  call.asked = bench::Record::Clock::now();
  call.stub->AsyncModelInfer(call.context.get(), request, &queue)
      ->Finish(&call.response, &call.status, &call);
}

// Each has its own connection; by default, gRPC shares one among all channels to a server.
std::vector<std::unique_ptr<Stub>> connect(const std::string& address, std::uint32_t connections) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  std::vector<std::unique_ptr<Stub>> stubs;
  for (std::uint32_t i = 0; i < connections; ++i) {
    stubs.push_back(inference::GRPCInferenceService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
  }
  return stubs;
}

// Has `depth` calls under way on each of the stubs until `end`.
void drive(const std::vector<Stub*>& stubs, std::uint32_t depth,
           const inference::ModelInferRequest& request, std::size_t bytes,
           bench::Record::Clock::time_point end, bench::Record& record) {
  grpc::CompletionQueue queue;
  std::vector<Call> calls(stubs.size() * depth);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i].stub = stubs[i % stubs.size()];
    ask(calls[i], request, queue);
  }
  std::size_t under_way = calls.size();
  void* tag = nullptr;
  bool ok = false;
  while (under_way > 0 && queue.Next(&tag, &ok)) {
    Call& call = *static_cast<Call*>(tag);
    --under_way;
    if (bench::Record::Clock::now() >= end) continue;
    record.add(call.asked, bytes, call.status.ok());
    ask(call, request, queue);
    ++under_way;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string host = "127.0.0.1";
  std::string model = "echo";
  std::string input = "x";
  std::uint32_t port = 0;
  std::uint32_t connections = 1;
  std::uint32_t depth = 1;
  std::int64_t bytes = 3136;
  double seconds = 5;
  double warm_up_seconds = 1;
  double timeout_ms = 0;
  std::uint32_t threads = 1;
  bool hold = false;
  bench::Options options("Load for bench_grpc_echo_server, or for a frontend with --model");
  options.add("--host", host);
  options.add("--port", port).required();
  options.add("--connections", connections).positive();
  options.add("--depth", depth, "calls in flight per connection").positive();
  options.add("--bytes", bytes, "of one request's input, a multiple of 4").in_range(4, 1 << 28);
  options.add("--seconds", seconds).positive();
  options.add("--warm-up", warm_up_seconds).not_negative();
  options.add("--model", model, "with one FP32 input of that many bytes");
  options.add("--input", input, "of the model");
  options.add("--timeout-ms", timeout_ms, "of a request; 0: the model's objective");
  options.add("--threads", threads, "that share the connections").positive();
  options.add_flag("--hold", hold, bench::kHoldHelp);
  if (const auto code = options.parse(argc, argv)) return *code;
  threads = std::min(threads, connections);

  const auto stubs = connect(host + ":" + std::to_string(port), connections);
  const inference::ModelInferRequest request = request_of(model, input, bytes, timeout_ms);
  const auto measured_from = bench::Record::Clock::now() + from_seconds(warm_up_seconds);
  const auto end = measured_from + from_seconds(seconds);
  std::vector<std::vector<Stub*>> parts(threads);
  for (std::size_t i = 0; i < stubs.size(); ++i) parts[i % threads].push_back(stubs[i].get());
  std::vector<std::unique_ptr<bench::Record>> records;
  for (std::uint32_t i = 0; i < threads; ++i)
    records.push_back(std::make_unique<bench::Record>(measured_from));
  {
    std::vector<std::jthread> runners;
    for (std::size_t i = 0; i < threads; ++i) {
      runners.emplace_back([&, i] {
        drive(parts[i], depth, request, static_cast<std::size_t>(bytes), end, *records[i]);
      });
    }
  }
  for (std::size_t i = 1; i < threads; ++i) records[0]->merge(*records[i]);
  print(records[0]->summary(from_seconds(seconds)), hold);
}
