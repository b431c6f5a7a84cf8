// make_fuzz_seeds DIR TARGET: writes small streams of the protocol for that fuzz target to start
// from, one for each kind of message. Exits 1 where the target has none.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gpulet/net/codec/codec.h"
#include "tests/net/frame_bytes.h"

namespace {

using namespace gpulet;
using namespace gpulet::serve;
using namespace std::chrono_literals;

class SeedFolder {
 public:
  explicit SeedFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }

  void add(const net::OutgoingFrame& frame) {
    const std::vector<std::byte> bytes = net::testing::bytes_of(frame);
    std::ofstream file(folder_ / ("seed" + std::to_string(count_++)), std::ios::binary);
    file.put('\x0c');  // read in pieces of 13 bytes
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

void add_client_seeds(SeedFolder& seeds, const std::vector<TensorSpec>& image,
                      const Bytes& payload) {
  seeds.add(net::encode(ClientMessage(InferRequest{7, "lenet", 50ms, image, payload})));
  seeds.add(net::encode(ClientMessage(ModelsRequest{})));
  seeds.add(net::encode(ClientMessage(StatusRequest{})));
  seeds.add(net::encode(ClientMessage(Authenticate{"a token of this client"})));
  seeds.add(net::encode(
      ClientMessage(ModelsChange{ModelsChange::Kind::load, "lenet", "/models.json", payload})));
  seeds.add(net::encode(FrontendReply(InferReply{7, {}, image, {payload}, 1ms, 2ms, 4})));
  seeds.add(net::encode(
      FrontendReply(InferReply{7, {StatusCode::too_late, "late"}, {}, {}, 1ms, 0ms, 0})));
  seeds.add(net::encode(FrontendReply(ModelsReply{{{"lenet", image, image, 50, 32}}})));
  seeds.add(net::encode(FrontendReply(StatusReply{"{}"})));
}

void add_backend_seeds(SeedFolder& seeds, const std::vector<TensorSpec>& image,
                       const Bytes& payload) {
  const std::string digest(64, 'a');
  const GpuletReport report{
      {3}, 0, Share{40}, {{"lenet", 8}}, GpuletState::failed, {StatusCode::internal, "died"}};
  const DeviceOffer offer{{{"n0", 0}, "cpu", "cpu_quota", {Share{20}, Share{100}}, 2, 1024},
                          "cgroup"};
  GpuletReport in_instance = report;
  in_instance.instance = partition::MigInstance{3, 4};
  DeviceOffer divided = offer;
  divided.device.mig = partition::MigGeometry::of("a100-80").value().without_3g_beside_4g();
  divided.device.processes_per_instance = 2;
  DeviceOffer cores = offer;
  cores.device.cores = 6;
  PlanPart controlled{0, {{"lenet", 0, 1, 12, 1, 50}}, schedule::Service::controlled};
  GpuletReport on_cores = report;
  on_cores.part = controlled;
  seeds.add(net::encode(
      BackendMessage(Hello{"n0", {offer, divided, cores}, {report, in_instance, on_cores}})));
  seeds.add(net::encode(BackendMessage(report)));
  seeds.add(net::encode(BackendMessage(BatchResult{{9}, {}, payload, 1ms, 2ms})));
  seeds.add(net::encode(BackendMessage(ModelWanted{digest})));
  seeds.add(net::encode(BackendMessage(Heartbeat{})));
  seeds.add(net::encode(BackendCommand(Welcome{500ms})));
  seeds.add(net::encode(
      BackendCommand(CreateGpulet{{3}, 0, Share{40}, {{"lenet", digest, image, image, 8}}})));
  CreateGpulet in_one{{4}, 1, Share{42}, {{"lenet", digest, image, image, 8}}};
  in_one.instance = partition::MigInstance{3, 4};
  seeds.add(net::encode(BackendCommand(in_one)));
  seeds.add(net::encode(BackendCommand(RetireGpulet{{3}})));
  seeds.add(net::encode(BackendCommand(AssignGpulet{{3}, controlled})));
  seeds.add(net::encode(BackendCommand(SetCores{{3}, 1.5})));
  seeds.add(net::encode(BackendCommand(Refused{{StatusCode::invalid, "a reason"}})));
  seeds.add(net::encode(BackendCommand(Batch{{9}, {3}, "lenet", 2, 5ms, 3ms, {payload, payload}})));
  seeds.add(net::encode(BackendCommand(ModelPiece{digest, 0, 100, payload})));
}

void add_proxy_seeds(SeedFolder& seeds, const std::vector<TensorSpec>& image) {
  seeds.add(net::encode(ProxyCommand(
      LoadModels{{{"lenet", "lenet.pt", image, image, 8, 1}}, {{"OMP_NUM_THREADS", "1"}}, 4096})));
  seeds.add(net::encode(ProxyCommand(RunBatch{{9}, "lenet", 2, 0, 32, 64, 32, 5ms, 1ms})));
  seeds.add(net::encode(ProxyCommand(StopProxy{})));
  seeds.add(net::encode(ProxyMessage(ProxyIdle{})));
  seeds.add(net::encode(ProxyMessage(ProxyReady{{}, 1U << 20U, {1, 2}})));
  seeds.add(net::encode(ProxyMessage(BatchRan{{9}, {}, 32, 1ms, 2ms})));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: make_fuzz_seeds DIR TARGET\n", stderr);
    return 2;
  }
  const std::string target = argv[2];
  if (target != "client_frames" && target != "peer_frames") return 1;
  SeedFolder seeds(argv[1]);
  const std::vector<TensorSpec> image{{"image", DataType::fp32, {2, 2}}};
  const Bytes payload = Bytes::own(std::vector<std::byte>(16));
  add_client_seeds(seeds, image, payload);
  if (target == "client_frames") return 0;
  add_backend_seeds(seeds, image, payload);
  add_proxy_seeds(seeds, image);
  return 0;
}
