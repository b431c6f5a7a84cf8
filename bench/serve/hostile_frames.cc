#include "bench/serve/hostile_frames.h"

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::bench {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kAnnouncedBytes = 64U << 20U;

class Folder {
 public:
  explicit Folder(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }

  void add(const std::string& name, const protocol::OutgoingFrame& frame) {
    std::ofstream file(folder_ / (name + ".bin"), std::ios::binary);
    file << frame.head;
    for (const Bytes& piece : frame.payload)
      file.write(reinterpret_cast<const char*>(piece.view().data()),
                 static_cast<std::streamsize>(piece.size()));
    if (!file) throw std::runtime_error("cannot write " + (folder_ / name).string());
  }

  // One among several of a kind.
  void add_one(const std::string& kind, const protocol::OutgoingFrame& frame) {
    add(kind + "_" + std::to_string(count_++), frame);
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

Bytes bytes_of(std::size_t count, std::byte value) {
  return Bytes::own(std::vector<std::byte>(count, value));
}

// Of a type that no profile measures: no plan uses it.
DeviceOffer offer(const std::string& node, std::uint32_t index) {
  DeviceOffer offer;
  offer.device.key = {node, index};
  offer.device.type = "unmeasured";
  offer.device.partitioning = "simulated";
  offer.device.sizes = {Share{50}, Share{100}};
  offer.device.max_partitions = 2;
  offer.mechanism = "simulated";
  return offer;
}

GpuletReport report_of(std::uint64_t id, const AttackedModels& models, GpuletState state) {
  GpuletReport report;
  report.id = {id};
  report.size = Share{100};
  report.models = {{models.small, 32, models.small_sha256}};
  report.state = state;
  if (state == GpuletState::failed) report.status = {StatusCode::internal, "it says so"};
  return report;
}

void add_client_frames(Folder& to, const AttackedModels& models) {
  const std::vector<TensorSpec> input{{"x", DataType::uint8, {784}}};
  to.add("status", protocol::encode(ClientMessage(StatusRequest{})));
  to.add("models", protocol::encode(ClientMessage(ModelsRequest{})));
  InferRequest large;
  large.model = models.large;
  large.inputs = {{"x", DataType::uint8, {kAnnouncedBytes}}};
  protocol::OutgoingFrame announce = protocol::encode(ClientMessage(large));
  const protocol::FrameHeader header{
      protocol::MessageType::infer_request,
      static_cast<std::uint32_t>(announce.head.size() - protocol::kFrameHeaderBytes),
      kAnnouncedBytes};
  const auto head = protocol::encode_frame_header(header);
  announce.head.replace(0, head.size(), reinterpret_cast<const char*>(head.data()), head.size());
  to.add("announce", announce);

  const Bytes picture = bytes_of(784, std::byte{0x66});
  // Too late at once: it is their frames that are the attack, not their work.
  to.add_one("valid",
             protocol::encode(ClientMessage(InferRequest{1, models.small, 1us, input, picture})));
  to.add_one("valid",
             protocol::encode(ClientMessage(InferRequest{2, "nothing", 50ms, input, picture})));
  to.add_one("valid", protocol::encode(ClientMessage(ModelsRequest{})));
  to.add_one("valid", protocol::encode(ClientMessage(StatusRequest{})));
  to.add_one("valid", protocol::encode(ClientMessage(Authenticate{"a token that nobody has"})));
  to.add_one("valid", protocol::encode(ClientMessage(
                          ModelsChange{ModelsChange::Kind::unload, "nothing", "m.json", {}})));
}

void add_backend_frames(Folder& to, const AttackedModels& models) {
  to.add("hello_n0", protocol::encode(BackendMessage(Hello{"n0", {offer("n0", 0)}, {}})));
  to.add("hello_evil", protocol::encode(BackendMessage(Hello{"evil", {offer("evil", 0)}, {}})));
  to.add("hello_twice",
         protocol::encode(BackendMessage(Hello{"evil", {offer("evil", 0), offer("evil", 0)}, {}})));
  Hello claims{"evil", {offer("evil", 0)}, {}};
  // Ids of a run begin at run * 2^40 + 1: some runs, and small numbers.
  for (std::uint64_t run = 0; run < 8; ++run) {
    for (std::uint64_t id = 1; id <= 8; ++id)
      claims.gpulets.push_back(report_of((run << 40U) + id, models, GpuletState::ready));
  }
  to.add("hello_claims", protocol::encode(BackendMessage(claims)));
  for (std::uint64_t i = 0; i < 64; ++i) {
    BatchResult result;
    result.id = {((i % 8) << 40U) + 1 + i / 8};
    result.outputs = bytes_of(10, std::byte{0x66});
    to.add_one("result", protocol::encode(BackendMessage(result)));
  }
  for (std::uint64_t id = 1; id <= 8; ++id) {
    for (const GpuletState state : {GpuletState::failed, GpuletState::gone})
      to.add_one("report", protocol::encode(BackendMessage(report_of(id, models, state))));
  }
  to.add("wanted", protocol::encode(BackendMessage(ModelPieceRequest{models.small_sha256, 0})));
  to.add("leaving", protocol::encode(BackendMessage(Draining{})));

  to.add_one("valid", protocol::encode(BackendMessage(Hello{"evil", {offer("evil", 0)}, {}})));
  to.add_one("valid", protocol::encode(BackendMessage(report_of(9, models, GpuletState::ready))));
  to.add_one("valid",
             protocol::encode(BackendMessage(BatchResult{{9}, {}, bytes_of(10, {}), 1ms, 1ms})));
  to.add_one("valid", protocol::encode(BackendMessage(ModelPieceRequest{models.small_sha256, 0})));
  to.add_one("valid", protocol::encode(BackendMessage(Heartbeat{})));
  to.add_one("valid", protocol::encode(BackendMessage(DeviceReport{0, {}})));
  to.add_one("valid", protocol::encode(BackendCommand(Welcome{500ms})));
  to.add_one("valid", protocol::encode(BackendCommand(RetireGpulet{{9}})));
}

}  // namespace

void write_attack_frames(const std::filesystem::path& folder, const AttackedModels& models) {
  Folder to(folder);
  add_client_frames(to, models);
  add_backend_frames(to, models);
}

}  // namespace gpulet::bench
