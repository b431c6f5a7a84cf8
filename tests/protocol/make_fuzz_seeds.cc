// make_fuzz_seeds DIR TARGET: writes seeds for a fuzz target, one small stream per message type.
// Exits with 1 if the target has none.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/proxy_messages.h"
#include "tests/protocol/frame_bytes.h"
#include "tests/protocol/fuzz_records.h"

namespace {

using namespace gpulet;
using namespace std::chrono_literals;

class SeedFolder {
 public:
  explicit SeedFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }

  void add(const protocol::OutgoingFrame& frame) {
    const std::vector<std::byte> bytes = protocol::testing::bytes_of(frame);
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
  seeds.add(protocol::encode(ClientMessage(InferRequest{7, "lenet", 50ms, image, payload})));
  seeds.add(protocol::encode(ClientMessage(ModelsRequest{})));
  seeds.add(protocol::encode(ClientMessage(StatusRequest{})));
  seeds.add(protocol::encode(ClientMessage(Authenticate{"a token of this client"})));
  seeds.add(protocol::encode(
      ClientMessage(ModelsChange{ModelsChange::Kind::load, "lenet", "/models.json", payload})));
  seeds.add(protocol::encode(FrontendReply(InferReply{7, {}, image, {payload}, 1ms, 2ms, 4})));
  seeds.add(protocol::encode(
      FrontendReply(InferReply{7, {StatusCode::too_late, "late"}, {}, {}, 1ms, 0ms, 0})));
  seeds.add(protocol::encode(FrontendReply(ModelsReply{{{"lenet", image, image, 50, 32}}})));
  seeds.add(protocol::encode(FrontendReply(StatusReply{"{}"})));
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
  PlanPart controlled{0, {{"lenet", 0, 1, 12, 1, 50}}, partition::Service::controlled};
  GpuletReport on_cores = report;
  on_cores.part = controlled;
  seeds.add(protocol::encode(
      BackendMessage(Hello{"n0", {offer, divided, cores}, {report, in_instance, on_cores}})));
  seeds.add(protocol::encode(BackendMessage(report)));
  seeds.add(protocol::encode(BackendMessage(BackendState{{7}, {report, in_instance}})));
  seeds.add(protocol::encode(BackendMessage(Superseded{{8}})));
  seeds.add(protocol::encode(BackendCommand(TakeLeadership{{7}})));
  seeds.add(protocol::encode(BackendCommand(SetOwner{{9}, "f1", {7}})));
  seeds.add(protocol::encode(BackendMessage(BatchResult{{9}, {}, payload, 1ms, 2ms})));
  seeds.add(protocol::encode(BackendMessage(ModelPieceRequest{digest})));
  seeds.add(protocol::encode(BackendMessage(Heartbeat{})));
  seeds.add(protocol::encode(BackendCommand(Welcome{500ms})));
  Welcome inviting{500ms};
  inviting.local = {"gpulet-0123456789abcdef", std::string(64, 'a'), 1000};
  seeds.add(protocol::encode(BackendCommand(inviting)));
  seeds.add(protocol::encode(
      BackendCommand(CreateGpulet{{3}, 0, Share{40}, {{"lenet", digest, image, image, 8}}})));
  CreateGpulet in_one{{4}, 1, Share{42}, {{"lenet", digest, image, image, 8}}};
  in_one.instance = partition::MigInstance{3, 4};
  seeds.add(protocol::encode(BackendCommand(in_one)));
  seeds.add(protocol::encode(BackendCommand(RetireGpulet{{3}})));
  seeds.add(protocol::encode(BackendCommand(AssignGpulet{{3}, controlled})));
  seeds.add(protocol::encode(BackendCommand(SetCores{{3}, 1.5})));
  seeds.add(protocol::encode(BackendCommand(Refused{{StatusCode::invalid, "a reason"}})));
  seeds.add(
      protocol::encode(BackendCommand(Batch{{9}, {3}, "lenet", 2, 5ms, 3ms, {payload, payload}})));
  Batch announced{{9}, {3}, "lenet", 3, 5ms, 3ms, {payload}};
  announced.entries = {{"f1", 1}, {"f2", 1}};
  seeds.add(protocol::encode(BackendCommand(announced)));
  seeds.add(protocol::encode(BackendCommand(Rows{"f1", {9}, {0}, {payload}})));
  Batch in_shared_memory{{9}, {3}, "lenet", 2, 5ms, 3ms, {}};
  in_shared_memory.shared = {{0, 3136}, {1U << 20U, 3136}};
  seeds.add(protocol::encode(BackendCommand(in_shared_memory)));
  seeds.add(protocol::encode(BackendCommand(ModelPiece{digest, 0, 100, payload})));
}

void add_peer_seeds(SeedFolder& seeds, const std::vector<TensorSpec>& image, const Bytes& payload) {
  seeds.add(protocol::encode(PeerRequest(PeerHello{"main", "f0", kProtocolLevel})));
  seeds.add(protocol::encode(PeerReply(PeerWelcome{"main", "f1", 500ms, kProtocolLevel})));
  seeds.add(
      protocol::encode(PeerRequest(Forward{{9, "lenet", 50ms, image, payload, 1}, 2ms, true})));
  ForwardReply reply;
  reply.reply.tag = 9;
  reply.reply.outputs = image;
  reply.reply.payload = {payload};
  seeds.add(protocol::encode(PeerReply(reply)));
  reply = {};
  reply.elsewhere = true;
  seeds.add(protocol::encode(PeerReply(reply)));
  seeds.add(protocol::encode(PeerReply(RowsWanted{{9}, "n0", {4, 7}})));
  seeds.add(protocol::encode(PeerRequest(CancelForward{9, "lenet"})));
  seeds.add(protocol::encode(PeerRequest(ChangeModels{
      3,
      {ModelsChange::Kind::load, "", "models.json", payload, R"({"max_batch_size":4})"},
      {{"lenet.pt", std::string(64, 'a')}}})));
  seeds.add(protocol::encode(PeerReply(ChangeResult{3, {{StatusCode::invalid, "a reason"}, {}}})));
  seeds.add(protocol::encode(PeerReply(CatalogueState{{{4}, 2}, payload})));
  seeds.add(protocol::encode(PeerRequest(CatalogueAdopted{{{4}, 2}})));
  seeds.add(protocol::encode(
      PeerRequest(SetRoutes{{4}, {{"n0", {{{9}, 20ms, {{"lenet", "sha", {1ms, 2ms}, 100}}}}}}})));
  seeds.add(protocol::encode(PeerRequest(OwnerReport{false,
                                                     {"n0"},
                                                     {{"lenet", 3, 2, 1, 0, 0, 1, {2ms}}},
                                                     {{{9}, 2, 3, 4ms, 8, 1}},
                                                     {{{9}, "lenet", 2, 3ms}},
                                                     {{{9}, {"lenet"}, 2, {}, {}}}})));
  seeds.add(protocol::encode(PeerRequest(StatisticsRequest{5, "lenet"})));
  InferenceStatistics counted;
  counted.name = "lenet";
  counted.success = {3, 9'000};
  counted.batches = {{2, {1, 10}, {1, 20}, {1, 30}}};
  seeds.add(protocol::encode(PeerReply(StatisticsReply{5, {counted}})));
  seeds.add(protocol::encode(PeerReply(
      ServedModels{true, {{"lenet", ModelState::unavailable, "its file is missing", 2}}})));
}

void add_proxy_seeds(SeedFolder& seeds, const std::vector<TensorSpec>& image) {
  seeds.add(protocol::encode(ProxyCommand(
      LoadModels{{{"lenet", "lenet.pt", image, image, 8, 1}}, {{"OMP_NUM_THREADS", "1"}}, 4096})));
  seeds.add(protocol::encode(ProxyCommand(RunBatch{{9}, "lenet", 2, 0, 32, 64, 32, 5ms, 1ms})));
  seeds.add(protocol::encode(ProxyCommand(StopProxy{})));
  seeds.add(protocol::encode(ProxyMessage(ProxyIdle{})));
  seeds.add(protocol::encode(ProxyMessage(ProxyReady{{}, 1U << 20U, {1, 2}})));
  seeds.add(protocol::encode(ProxyMessage(BatchRan{{9}, {}, 32, 1ms, 2ms})));
}

// For the targets that take sequences of records.
class SequenceFolder {
 public:
  explicit SequenceFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }

  struct Step {
    std::uint8_t control;
    std::uint8_t aim;
    protocol::OutgoingFrame frame;
  };

  void add(const std::vector<Step>& steps) {
    std::ofstream file(folder_ / ("seed" + std::to_string(count_++)), std::ios::binary);
    for (const Step& step : steps) {
      const auto bytes = protocol::testing::record_of(step.control, step.aim, step.frame);
      file.write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    }
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

// What control and aim mean: tests/serve/fuzz_hello.cc.
void add_hello_sequences(SequenceFolder& seeds) {
  constexpr std::uint8_t kAsk = 8, kOther = 16, kAim = 64;
  const DeviceOffer card{{{"x", 0}, "card", "simulated", {Share{50}, Share{100}}, 2}, "simulated"};
  GpuletReport ready{{3}, 0, Share{100}, {{"a", 8, "hash-of-a"}}, GpuletState::ready, {}};
  GpuletReport failed = ready;
  failed.state = GpuletState::failed;
  failed.status = {StatusCode::internal, "it says so"};
  const auto hello = protocol::encode(BackendMessage(Hello{"x", {card}, {}}));
  const auto claims = protocol::encode(BackendMessage(Hello{"x", {card}, {ready}}));
  const auto result = protocol::encode(
      BackendMessage(BatchResult{{9}, {}, Bytes::own(std::vector<std::byte>(1)), {}, 1ms}));
  const auto alive = protocol::encode(BackendMessage(Heartbeat{}));
  const auto report = protocol::encode(BackendMessage(ready));
  const auto bad_report = protocol::encode(BackendMessage(failed));
  const auto wanted = protocol::encode(BackendMessage(ModelPieceRequest{std::string(64, 'a')}));
  const auto leaving = protocol::encode(BackendMessage(Draining{}));
  const auto lost = protocol::encode(
      BackendMessage(DeviceReport{0, {StatusCode::unavailable, "it fell off the bus"}}));
  const auto with_terms =
      protocol::encode(BackendMessage(Hello{"x", {card}, {}, kProtocolLevel, {0}}));
  const auto later_term =
      protocol::encode(BackendMessage(Hello{"x", {card}, {}, kProtocolLevel, {5}}));
  const auto state = protocol::encode(BackendMessage(BackendState{{1}, {ready}}));
  const auto superseded = protocol::encode(BackendMessage(Superseded{{9}}));
  // A backend that knows terms, obeys another frontend, and returns.
  seeds.add({{0, 0, with_terms}, {0, 0, state}, {kAim, 0, report}, {0, 0, superseded}});
  seeds.add({{0, 0, later_term}, {0, 0, state}, {0, 0, superseded}, {6, 0, alive}});
  // Before a Hello, and another's batches.
  seeds.add({{kAsk, 0, alive}, {kAim | 2, 0, result}, {0, 0, wanted}});
  seeds.add({{kAsk, 0, hello}, {kAsk | kAim | 2, 0, result}, {kAim, 0, bad_report}});
  // Two of them, one under another's name, one with another's gpulets and one device twice.
  seeds.add({{0, 0, hello}, {kAsk | 3, 0, hello}, {kAim | 4, 1, hello}, {6, 0, alive}});
  seeds.add({{kAim, 2, claims}, {kAsk | kAim | 3, 0, report}, {kAsk | 6, 0, alive}});
  seeds.add({{kAim, 8, hello}, {kAsk | 6, 0, alive}, {kAsk | 7, 0, alive}});
  seeds.add({{kAim, 16, hello}, {kAsk | 6, 0, alive}});
  // A device that plans use, and what comes of that.
  seeds.add({{kAim, 4, hello},
             {kAsk | 5, 0, alive},
             {kAsk | kAim | 5, 1, report},
             {kAsk | kAim | 3, 0, result},
             {6, 0, lost},
             {kAim | 5, 2, bad_report},
             {5, 0, leaving}});
  // Two strangers.
  seeds.add({{kAim, 4, hello},
             {kOther, 0, hello},
             {kOther | kAim | 5, 0, report},
             {kAsk | kAim | 3, 1, result}});
  const std::vector<TensorSpec> byte{{"", DataType::uint8, {1}}};
  seeds.add({{0, 0,
              protocol::encode(ClientMessage(
                  InferRequest{7, "a", 50ms, byte, Bytes::own(std::vector<std::byte>(1))}))}});
}

// tests/serve/fuzz_commands.cc.
void add_command_sequences(SequenceFolder& seeds) {
  constexpr std::uint8_t kNoFile = 8, kNoLoad = 16, kDie = 32, kLose = 64, kAim = 128;
  const std::vector<TensorSpec> tensor{{"x", DataType::uint8, {4}}};
  const std::string digest(64, 'a');
  const auto create = protocol::encode(
      BackendCommand(CreateGpulet{{1}, 0, Share{40}, {{"a", digest, tensor, tensor, 8}}}));
  PlanPart controlled{0, {{"a", 0, 1, 12, 1, 50}}, partition::Service::controlled};
  CreateGpulet on_cores{{2}, 1, Share{40}, {{"a", digest, tensor, tensor, 8}}, controlled};
  const auto create_on_cores = protocol::encode(BackendCommand(on_cores));
  const auto batch = protocol::encode(
      BackendCommand(Batch{{9}, {1}, "a", 2, 500ms, 5ms, {Bytes::own(std::vector<std::byte>(8))}}));
  const auto retire = protocol::encode(BackendCommand(RetireGpulet{{1}}));
  const auto assign = protocol::encode(BackendCommand(AssignGpulet{{1}, controlled}));
  const auto cores = protocol::encode(BackendCommand(SetCores{{2}, 1.5}));
  const auto welcome = protocol::encode(BackendCommand(Welcome{500ms}));
  const auto owner = protocol::encode(BackendCommand(SetOwner{{1}, "f1"}));
  const auto piece = protocol::encode(
      BackendCommand(ModelPiece{digest, 0, 100, Bytes::own(std::vector<std::byte>(100))}));
  const auto lead = protocol::encode(BackendCommand(TakeLeadership{{3}}));
  const auto welcome_with_terms = protocol::encode(BackendCommand(Welcome{500ms, kProtocolLevel}));
  CreateGpulet later{{1}, 0, Share{40}, {{"a", digest, tensor, tensor, 8}}};
  later.term = {3};
  const auto create_later = protocol::encode(BackendCommand(later));
  seeds.add({{0, 0, welcome_with_terms},
             {0, 0, create},
             {0, 0, lead},
             {kAim, 0, create_later},
             {kLose, 0, lead},
             {kAim | 3, 0, retire}});
  seeds.add({{0, 0, welcome},
             {kAim, 0, create},
             {kAim | 5, 0, batch},
             {kAim, 0, batch},
             {kAim | 3, 0, retire}});
  seeds.add({{kNoFile | kAim, 0, create}, {2, 0, piece}, {kAim | 5, 0, batch}});
  seeds.add({{kNoLoad | kAim, 0, create}, {kAim | 6, 0, batch}, {7, 0, welcome}});
  seeds.add({{kAim, 0, create},
             {kAim | kDie | 5, 0, batch},
             {kAim | kDie | 6, 0, batch},
             {kAim | 6, 0, batch}});
  seeds.add(
      {{kAim, 5, create_on_cores}, {kAim | 5, 1, cores}, {kAim | 3, 1, batch}, {kAim, 1, assign}});
  seeds.add({{kAim, 0, create}, {kAim | kLose | 5, 0, batch}, {kAim, 0, create}, {kAim, 0, batch}});
  // Another owner, whose batch runs, and the leader's, which does not; the owner's connection ends.
  constexpr std::uint8_t kSecond = 32, kTakeLead = 64;
  seeds.add({{kAim, kTakeLead, create},
             {kAim | 5, 4, owner},
             {kAim, kSecond, batch},
             {kAim, 0, batch},
             {kAim | kLose, kSecond, batch},
             {kAim, 0, owner},
             {kAim, 0, batch}});
  // Inputs of the second frontend for batches of the first one: before and after the batch, twice,
  // too many, and none.
  Batch awaited{{9}, {1}, "a", 2, 500ms, 5ms, {Bytes::own(std::vector<std::byte>(4))}};
  awaited.entries = {{"f1", 1}};
  const auto announced = protocol::encode(BackendCommand(awaited));
  const auto rows = protocol::encode(
      BackendCommand(Rows{"f0", {9}, {0}, {Bytes::own(std::vector<std::byte>(4))}}));
  const auto more = protocol::encode(
      BackendCommand(Rows{"f0", {9}, {0, 1}, {Bytes::own(std::vector<std::byte>(8))}}));
  seeds.add({{kAim, kTakeLead, create},
             {kAim | 5, 0, announced},
             {0, kSecond, rows},
             {0, kSecond, rows},
             {kAim | 5, 0, announced},
             {0, kSecond, more},
             {kAim, 0, announced},
             {kLose, kSecond, rows},
             {kAim, 0, announced},
             {kAim | 5, 0, retire}});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: make_fuzz_seeds DIR TARGET\n", stderr);
    return 2;
  }
  const std::string target = argv[2];
  if (target == "hello" || target == "commands") {
    SequenceFolder sequences(argv[1]);
    target == "hello" ? add_hello_sequences(sequences) : add_command_sequences(sequences);
    return 0;
  }
  if (target != "client_frames" && target != "peer_frames") return 1;
  SeedFolder seeds(argv[1]);
  const std::vector<TensorSpec> image{{"image", DataType::fp32, {2, 2}}};
  const Bytes payload = Bytes::own(std::vector<std::byte>(16));
  add_client_seeds(seeds, image, payload);
  if (target == "client_frames") return 0;
  add_backend_seeds(seeds, image, payload);
  add_peer_seeds(seeds, image, payload);
  add_proxy_seeds(seeds, image);
  return 0;
}
