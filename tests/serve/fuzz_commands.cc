// Feeds BackendCore the commands of two hostile frontends. Whatever it receives, every batch gets
// at most one result, and exactly one while its connection lasts; no process is started twice or
// used after its end; only the frontend that leads starts processes; and the core ends after
// ShutDown.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "gpulet/node/backend_core.h"
#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/proxy_messages.h"
#include "tests/protocol/fuzz_records.h"
#include "tests/support/serve/world.h"

namespace {

using namespace gpulet;         // NOLINT(google-build-using-namespace)
using namespace gpulet::serve;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;
using protocol::testing::FuzzRecord;

constexpr std::array<Duration, 8> kPauses{0ms, 0ms, 1ms, 10ms, 40ms, 300ms, 2s, 30s};
constexpr std::array<const char*, 2> kMembers{"f0", "f1"};
constexpr std::size_t kMaxRecords = 48;
constexpr int kMaxEvents = 20'000;  // until the core must have ended

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

node::BackendCoreOptions options() {
  node::BackendCoreOptions options;
  options.node = "n0";
  auto profiles = std::make_shared<profile::ProfileSet>();
  profiles->emplace("card", serve::testing::card_profile({{"a", 4}, {"lenet", 6}}));
  options.profiles = profiles;
  for (std::uint32_t i = 0; i < 2; ++i) {
    DeviceOffer& offer = options.devices.emplace_back();
    offer.device.key = {"n0", i};
    offer.device.type = "card";
    offer.device.partitioning = i == 0 ? "simulated" : "cpu_quota";
    offer.device.sizes = {Share{20}, Share{40}, Share{60}, Share{100}};
    offer.device.cores = i == 0 ? 0 : 4;
  }
  return options;
}

// Plays the backend module: processes, files and the connection.
class FakeBackend {
 public:
  FakeBackend() : core_(options()) {
    peers_[0].level = kProtocolLevel;
    for (Peer& peer : peers_) connect(peer);
  }

  void take(const FuzzRecord& record) {
    run_until(now_ + kPauses[record.control & 7U]);
    files_fail_ = (record.control & 8U) != 0;
    loading_fails_ = (record.control & 16U) != 0;
    processes_die_ = (record.control & 32U) != 0;
    Peer& peer = peers_[(record.aim & 32U) != 0 ? 1 : 0];
    if ((record.control & 64U) != 0 && peer.connected) disconnect(peer);
    if (!peer.connected) connect(peer);
    if ((record.aim & 64U) != 0) take_leadership(peer);
    auto command = protocol::decode<BackendCommand>(record.header, record.message, record.payload);
    if (!command.ok()) return;
    if ((record.control & 128U) != 0) aim(command.value(), peer.term, record.aim);
    std::visit([&](auto& one) { receive(peer, one); }, command.value());
  }

  void end() {
    files_fail_ = loading_fails_ = processes_die_ = false;
    feed(node::ShutDown{});
    for (int event = 0; event < kMaxEvents && !core_.finished(); ++event) {
      const Time next = next_event();
      require(next != kNever, "the core waits for nothing and has not finished");
      run_until(next + 1us);
    }
    require(core_.finished(), "the core finishes after node::ShutDown");
    require(processes_.empty(), "no process outlives the core");
    for (const Peer& peer : peers_)
      require(!peer.connected || peer.waiting.empty(), "every batch got a result");
  }

 private:
  using Life = std::uint64_t;

  // A frontend and its last connection.
  struct Peer {
    std::uint32_t level = 0;
    Term term{};  // of its last leadership
    bool connected = false;
    FrontendId frontend{};
    std::map<BatchId, std::size_t> waiting{};  // batches of this connection without a result
  };

  void connect(Peer& peer) {
    peer.connected = true;
    peer.frontend = FrontendId{++last_frontend_};
    feed(node::FrontendConnected{peer.frontend});
    // A frontend of level 0 leads until the other one takes the leadership under a term.
    Welcome welcome{500ms};
    welcome.level = peer.level;
    welcome.member = kMembers[&peer == peers_.data() ? 0 : 1];
    feed_command(peer, welcome);
  }
  void disconnect(Peer& peer) {
    peer.connected = false;
    peer.waiting.clear();
    feed(node::FrontendDisconnected{peer.frontend});
  }
  void take_leadership(Peer& peer) {
    peer.term = Term{++last_term_};
    feed_command(peer, TakeLeadership{peer.term});
  }

  Peer& peer_of(FrontendId frontend) {
    const auto found = std::ranges::find(peers_, frontend, &Peer::frontend);
    require(found != peers_.end() && found->connected, "a message without a connection");
    return *found;
  }

  void feed_command(const Peer& peer, node::FrontendCommand command) {
    feed(node::CommandReceived{peer.frontend, std::move(command)});
  }

  void receive(Peer& peer, Welcome& command) { feed_command(peer, command); }
  void receive(Peer& peer, TakeLeadership& command) { feed_command(peer, command); }
  void receive(Peer& peer, Heartbeat& command) { feed_command(peer, command); }
  void receive(Peer& peer, Refused& /*command*/) { disconnect(peer); }  // the connection ends
  void receive(Peer& peer, RetireGpulet& command) { feed_command(peer, command); }
  void receive(Peer& peer, SetCores& command) { feed_command(peer, command); }
  void receive(Peer& peer, SetOwner& command) { feed_command(peer, std::move(command)); }
  void receive(Peer& peer, AssignGpulet& command) { feed_command(peer, std::move(command)); }
  void receive(Peer& peer, CreateGpulet& command) {
    node::GpuletRequested requested{std::move(command), {}};
    for (const ModelToServe& model : requested.create.models) {
      if (!files_fail_) requested.stored.emplace(model.sha256, "/store/" + model.sha256);
    }
    commanding_ = peer.frontend;
    feed_command(peer, std::move(requested));
    commanding_.reset();
  }
  void receive(Peer& peer, Batch& command) {
    ++peer.waiting[command.id];
    node::BatchArrived arrived;
    arrived.arrived = now_;
    arrived.placed = !command.inputs.empty() && core_.takes_batches(peer.frontend, command.gpulet);
    arrived.batch = std::move(command);
    feed_command(peer, std::move(arrived));
  }
  void receive(Peer& peer, Rows& command) {
    const std::size_t bytes = command.inputs.front().size();
    if (!core_.takes_rows(peer.frontend, command, bytes)) command.inputs.front() = {};
    feed_command(peer, std::move(command));
  }
  void receive(Peer& peer, ModelPiece& command) {
    feed_command(peer, Heartbeat{});
    if (!core_.obeys(peer.frontend)) return;
    if (files_fail_) {
      feed(node::ModelFailed{command.sha256,
                             {StatusCode::not_found, "the frontend lacks the file"}});
    } else if (command.offset + command.data.size() < command.total_bytes) {
      feed(node::ModelProgress{command.sha256, command.offset + command.data.size(),
                               command.total_bytes});
    } else {
      feed(node::ModelStored{command.sha256, "/store/" + command.sha256});
    }
  }

  // Redirects the command to an existing gpulet and device, under the term of its sender.
  static void aim(BackendCommand& command, Term term, std::uint8_t aim) {
    const GpuletId id{1U + (aim & 3U)};
    std::visit(
        [term](auto& one) {
          if constexpr (requires { one.term; }) one.term = term;
        },
        command);
    if (auto* const create = std::get_if<CreateGpulet>(&command)) {
      create->id = id;
      create->device = (aim >> 2U) & 1U;
      create->size = Share{(aim & 8U) != 0 ? 40 : 60};
      if ((aim & 16U) != 0) create->instance.reset();
    } else if (auto* const batch = std::get_if<Batch>(&command)) {
      batch->gpulet = id;
    } else if (auto* const retire = std::get_if<RetireGpulet>(&command)) {
      retire->id = id;
    } else if (auto* const assign = std::get_if<AssignGpulet>(&command)) {
      assign->id = id;
    } else if (auto* const cores = std::get_if<SetCores>(&command)) {
      cores->id = id;
    } else if (auto* const owner = std::get_if<SetOwner>(&command)) {
      owner->id = id;
      owner->owner = kMembers[(aim >> 2U) & 1U];
    }
  }

  // ---- the core

  void feed(node::BackendEvent event) {
    node::BackendEffects effects;
    core_.on(std::move(event), now_, effects);
    std::vector<FrontendId> disconnected;
    for (node::BackendEffect& effect : effects)
      std::visit([&](auto& one) { carry_out(one, disconnected); }, effect);
    for (const FrontendId frontend : disconnected) {
      const auto peer = std::ranges::find(peers_, frontend, &Peer::frontend);
      if (peer != peers_.end() && peer->connected) disconnect(*peer);
    }
  }

  using Disconnected = std::vector<FrontendId>;

  void carry_out(node::SendToFrontend& effect, Disconnected& /*disconnected*/) {
    Peer& peer = peer_of(effect.frontend);
    static_cast<void>(protocol::encode(effect.message));
    const auto* const result = std::get_if<BatchResult>(&effect.message);
    if (result == nullptr) return;
    const auto found = peer.waiting.find(result->id);
    require(found != peer.waiting.end(), "a result for no batch, or a second one");
    if (--found->second == 0) peer.waiting.erase(found);
  }
  void carry_out(node::DisconnectFrontend& effect, Disconnected& disconnected) {
    disconnected.push_back(effect.frontend);
  }
  void carry_out(node::DropUnfinishedFiles& /*effect*/, Disconnected& /*disconnected*/) {}
  void carry_out(node::StartGpulet& effect, Disconnected& /*disconnected*/) {
    require(!commanding_ || core_.obeys(*commanding_), "a process for a frontend without the lead");
    const Life life = next_life_++;
    require(processes_.emplace(effect.gpulet, life).second, "two processes for one gpulet");
    later(effect.gpulet, life, 10ms, node::ProxyStarted{effect.gpulet});
    const Status loaded = loading_fails_ ? Status(StatusCode::internal, "no model") : Status();
    later(effect.gpulet, life, 20ms, node::ProxyLoaded{effect.gpulet, loaded});
  }
  void carry_out(node::ActivateShare& effect, Disconnected& /*disconnected*/) {
    later(effect.gpulet, life_of(effect.gpulet), 1ms, node::ShareActive{effect.gpulet, {}});
  }
  void carry_out(node::AdjustCores& effect, Disconnected& /*disconnected*/) {
    later(effect.gpulet, life_of(effect.gpulet), 1ms, node::CoresSet{effect.gpulet, {}});
  }
  void carry_out(node::RunOnProxy& effect, Disconnected& /*disconnected*/) {
    const Life life = life_of(effect.gpulet);
    if (processes_die_) return end_process(effect.gpulet, life, "killed by signal 11");
    const BatchRan ran{effect.batch.id, {}, effect.batch.output_capacity, {}, 5ms};
    later(effect.gpulet, life, 5ms,
          node::BatchCompleted{effect.gpulet, ran, std::move(effect.input)});
  }
  void carry_out(node::FinishProxy& effect, Disconnected& /*disconnected*/) {
    end_process(effect.gpulet, life_of(effect.gpulet), "");
  }
  void carry_out(node::KillProxy& effect, Disconnected& /*disconnected*/) {
    end_process(effect.gpulet, life_of(effect.gpulet), "killed");
  }

  [[nodiscard]] Life life_of(GpuletId gpulet) const {
    const auto found = processes_.find(gpulet);
    require(found != processes_.end(), "an effect for a process that does not exist");
    return found->second;
  }

  // ProxyEnded comes after all other events of the process.
  void end_process(GpuletId gpulet, Life life, const std::string& why) {
    const Status reason = why.empty() ? Status() : Status(StatusCode::unavailable, why);
    later(gpulet, life, 30ms, node::ProxyEnded{gpulet, reason});
  }

  // ---- time

  struct Pending {
    GpuletId gpulet;
    Life life = 0;
    node::BackendEvent event;
  };

  void later(GpuletId gpulet, Life life, Duration after, node::BackendEvent event) {
    pending_.emplace(now_ + after, Pending{gpulet, life, std::move(event)});
  }

  [[nodiscard]] Time next_event() const {
    return std::min(core_.next_wakeup(), pending_.empty() ? kNever : pending_.begin()->first);
  }

  void run_until(Time time) {
    for (int event = 0; event < kMaxEvents && next_event() < time; ++event) {
      now_ = std::max(now_, next_event());
      if (pending_.empty() || core_.next_wakeup() <= pending_.begin()->first) {
        feed(node::TimePassed{});
        continue;
      }
      Pending one = std::move(pending_.extract(pending_.begin()).mapped());
      const auto found = processes_.find(one.gpulet);
      if (found == processes_.end() || found->second != one.life) continue;
      if (std::holds_alternative<node::ProxyEnded>(one.event)) processes_.erase(found);
      feed(std::move(one.event));
    }
    require(next_event() >= time, "the core wakes forever without progress of time");
    now_ = std::max(now_, time);
  }

  Time now_{1s};
  node::BackendCore core_;
  std::array<Peer, 2> peers_{};
  std::uint64_t last_frontend_ = 0;
  std::uint64_t last_term_ = 0;
  std::optional<FrontendId> commanding_{};  // the sender of the CreateGpulet being executed
  bool files_fail_ = false;
  bool loading_fails_ = false;
  bool processes_die_ = false;
  std::map<GpuletId, Life> processes_;
  Life next_life_ = 1;
  std::multimap<Time, Pending> pending_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  FakeBackend backend;
  for (std::size_t i = 0; i < kMaxRecords; ++i) {
    const auto record = protocol::testing::next_record(bytes);
    if (!record) break;
    backend.take(*record);
  }
  backend.end();
  return 0;
}
