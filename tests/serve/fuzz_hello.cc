// Two hostile backends beside an honest one, and hostile clients: whatever they say in whatever
// order, every honest request has one answer, the honest backend stays, and once the hostile ones
// are gone the models are served again.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/protocol/codec.h"
#include "tests/protocol/fuzz_records.h"
#include "tests/support/serve/world.h"

namespace {

using namespace gpulet;         // NOLINT(google-build-using-namespace)
using namespace gpulet::serve;  // NOLINT(google-build-using-namespace)
using namespace std::chrono_literals;
using protocol::testing::FuzzRecord;
using serve::testing::World;

constexpr std::array<Duration, 8> kPauses{0ms, 0ms, 1ms, 5ms, 20ms, 150ms, 600ms, 2600ms};
constexpr std::size_t kMostRecords = 24;
constexpr BackendId kHonest{1};
constexpr ClientId kHostileClient{2};
constexpr std::uint64_t kHostileTag = 1ULL << 40U;
// Longer than the longest objective, and than what is held back or refused for a while.
constexpr Duration kAnswersDue = 5s;
constexpr Duration kServesAgainWithin = 120s;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

FrontendOptions options() {
  FrontendOptions options;
  options.period = 2s;
  options.least_between_plans = 100ms;
  options.gather = 10ms;
  options.gather_after_restart = 10ms;
  options.backoff = 500ms;
  return options;
}

class Scene {
 public:
  Scene()
      : world_(options(),
               {serve::testing::byte_model("a", 200, 20), serve::testing::byte_model("b", 300, 10)},
               serve::testing::card_profile({{"a", 4}, {"b", 6}})) {
    world_.observe([this](const FrontendEvent& event, Time, const FrontendEffects& effects) {
      see(event, effects);
    });
    world_.add_backend("n0", 1);
    world_.run_until(world_.now() + 2s);
    for (BackendId& stranger : strangers_) stranger = connect();
  }

  void take(const FuzzRecord& record) {
    world_.run_until(world_.now() + kPauses[record.control & 7U]);
    if ((record.control & 8U) != 0) ask(record.aim % 2 == 0 ? "a" : "b");
    BackendId& stranger = strangers_[(record.control >> 4U) & 1U];
    if ((record.control & 32U) != 0 || !connected_.contains(stranger)) {
      leave(stranger);
      stranger = connect();
    }
    if (auto said = protocol::decode<BackendMessage>(record.header, record.message, record.payload);
        said.ok()) {
      if ((record.control & 64U) != 0) aim(said.value(), record.aim);
      world_.inject(BackendMessageReceived{stranger, std::move(said).value()});
    } else if (auto asked =
                   protocol::decode<ClientMessage>(record.header, record.message, record.payload);
               asked.ok()) {
      if (auto* const request = std::get_if<InferRequest>(&asked.value())) {
        request->tag |= kHostileTag;
        world_.inject(RequestReceived{kHostileClient, std::move(*request)});
      }
    }
    // Everything that anybody may ask for at any time.
    static_cast<void>(world_.status());
    static_cast<void>(world_.frontend().models_after("", 100));
  }

  void end() {
    for (const BackendId stranger : strangers_) leave(stranger);
    world_.run_until(world_.now() + kAnswersDue);
    for (const auto& [tag, replies] : world_.replies())
      require(asked_.contains(tag) || tag >= kHostileTag, "an answer to nothing that was asked");
    for (const auto& [tag, model] : asked_) judge(tag, model);
    const FrontendStatus status = world_.status();
    require(status.backends.size() == 1 && status.backends.contains(kHonest),
            "the honest backend, and no other, is there at the end");
    serve_again("a");
    serve_again("b");
  }

 private:
  BackendId connect() {
    const BackendId stranger{next_stranger_++};
    connected_.insert(stranger);
    return stranger;
  }
  void leave(BackendId stranger) {
    if (connected_.erase(stranger) > 0)
      world_.inject(BackendDisconnected{stranger, {StatusCode::cancelled, "it closed"}});
  }

  std::uint64_t ask(const std::string& model) {
    const std::uint64_t tag = next_tag_++;
    asked_[tag] = model;
    world_.request_at(world_.now(), model, tag);
    return tag;
  }

  void judge(std::uint64_t tag, const std::string& model) const {
    const auto found = world_.replies().find(tag);
    require(found != world_.replies().end(), "a request without an answer");
    require(found->second.size() == 1, "a request with two answers");
    const InferReply& reply = found->second.front().reply;
    if (!reply.status.ok()) return;
    const bool right = reply.payload.size() == 1 && reply.payload[0].size() == 1 &&
                       std::to_integer<std::uint64_t>(reply.payload[0].view()[0]) == (tag & 255U);
    // A backend that offered a device and got the request may answer it as it likes.
    require(right || given_away_.contains({model, tag & 255U}),
            "an answer from a backend that was never asked");
  }

  void serve_again(const std::string& model) {
    const Time end = world_.now() + kServesAgainWithin;
    while (world_.now() < end) {
      const std::uint64_t tag = ask(model);
      world_.run_until(world_.now() + 1s);
      const auto found = world_.replies().find(tag);
      require(found != world_.replies().end() && found->second.size() == 1,
              "a request without an answer after the strangers left");
      if (found->second.front().reply.status.ok()) return;
    }
    require(false, "a model is not served again after the strangers left");
  }

  void see(const FrontendEvent& event, const FrontendEffects& effects) {
    if (const auto* const said = std::get_if<BackendMessageReceived>(&event)) {
      const auto* const result = std::get_if<BatchResult>(&said->message);
      if (result != nullptr && said->backend == kHonest) std::erase(held_, result->id);
    }
    for (const FrontendEffect& effect : effects) {
      if (const auto* const drop = std::get_if<DisconnectBackend>(&effect)) {
        require(drop->backend != kHonest, "the honest backend is sent away");
        connected_.erase(drop->backend);  // nothing more of it is heard
      }
      const auto* const tell = std::get_if<SendToBackend>(&effect);
      if (tell == nullptr) continue;
      if (const auto* const create = std::get_if<CreateGpulet>(&tell->command))
        gpulets_.push_back(create->id);
      const auto* const batch = std::get_if<Batch>(&tell->command);
      if (batch == nullptr) continue;
      held_.push_back(batch->id);
      if (tell->backend == kHonest) continue;
      for (const Bytes& input : batch->inputs) {
        for (const std::byte value : input.view())
          given_away_.insert({batch->model, std::to_integer<std::uint64_t>(value)});
      }
    }
  }

  // Numbers that nobody guesses become real ones.
  void aim(BackendMessage& message, std::uint8_t aim) const {
    if (auto* const result = std::get_if<BatchResult>(&message)) {
      if (!held_.empty()) result->id = held_[aim % held_.size()];
    } else if (auto* const report = std::get_if<GpuletReport>(&message)) {
      if (!gpulets_.empty()) report->id = gpulets_[aim % gpulets_.size()];
    } else if (auto* const hello = std::get_if<Hello>(&message)) {
      if ((aim & 1U) != 0) hello->node = "n0";
      for (std::size_t i = 0; i < hello->gpulets.size() && !gpulets_.empty(); ++i) {
        if ((aim & 2U) != 0) hello->gpulets[i].id = gpulets_[(aim + i) % gpulets_.size()];
      }
      if ((aim & 4U) != 0) {  // devices that plans can use
        for (DeviceOffer& offer : hello->devices) {
          offer.device.type = "card";
          offer.device.partitioning = "simulated";
          offer.device.sizes = {Share{20}, Share{50}, Share{100}};
          offer.device.mig.reset();
          offer.fault = {};
        }
      }
      if ((aim & 8U) != 0 && !hello->devices.empty())
        hello->devices.push_back(hello->devices.front());
      if ((aim & 16U) != 0) {
        for (DeviceOffer& offer : hello->devices) offer.device.key.node = "n0";
      }
    }
  }

  World world_;
  std::array<BackendId, 2> strangers_{};
  std::set<BackendId> connected_;
  std::uint64_t next_stranger_ = 1000;
  std::uint64_t next_tag_ = 1;
  std::map<std::uint64_t, std::string> asked_;  // which model, by tag
  std::vector<BatchId> held_;                   // told to a backend, and not answered by the honest
  std::vector<GpuletId> gpulets_;               // that were ever asked for
  std::set<std::pair<std::string, std::uint64_t>> given_away_;  // inputs that strangers were sent
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  Scene scene;
  for (std::size_t i = 0; i < kMostRecords; ++i) {
    const auto record = protocol::testing::next_record(bytes);
    if (!record) break;
    scene.take(*record);
  }
  scene.end();
  return 0;
}
