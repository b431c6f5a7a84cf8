#include "proxy/obey.h"

#include <optional>
#include <utility>
#include <variant>

#include "gpulet/serve/messages.h"
#include "proxy/channel.h"
#include "proxy/command_reader.h"
#include "proxy/pipeline.h"

namespace gpulet::proxy {
namespace {

class Obedience {
 public:
  Obedience(const ProxyOptions& options, MakeExecutor make_executor, const TellLost& tell_lost)
      : control_fd_(options.control_fd),
        tell_lost_(tell_lost),
        reader_(options.control_fd),
        loaded_(options, std::move(make_executor), [this] { return reader_.peer_is_gone(); }) {}

  Status run();

 private:
  Status on(const serve::LoadModels& command);
  Status on(const serve::RunBatch& batch, Clock::time_point arrived);
  Status answer(const serve::BatchRan& ran) const;
  void tell_if_lost(partition::DeviceHealth device, const Status& why) const;

  const int control_fd_;
  const TellLost& tell_lost_;
  CommandReader reader_;
  Loaded loaded_;
  // Only where the executor can have several batches under way. After what it uses.
  std::optional<Pipeline> pipeline_;
};

Status Obedience::run() {
  // A peer that is gone by now shows in what it sent, or did not send.
  static_cast<void>(write_message(control_fd_, serve::ProxyIdle{}));
  for (;;) {
    Result<std::optional<TimedCommand>> next = reader_.take();
    if (!next.ok()) return next.status();
    if (!next.value().has_value()) return {};
    const auto& [command, arrived] = *next.value();
    if (std::holds_alternative<serve::StopProxy>(command))
      return pipeline_ ? pipeline_->drain() : Status();

    const auto* models = std::get_if<serve::LoadModels>(&command);
    Status done = models != nullptr ? on(*models) : on(std::get<serve::RunBatch>(command), arrived);
    if (!done.ok()) return done;
  }
}

Status Obedience::on(const serve::LoadModels& command) {
  if (pipeline_) {
    if (Status drained = pipeline_->drain(); !drained.ok()) return drained;
  }
  const serve::ProxyReady ready = loaded_.load(command);
  if (!pipeline_ && loaded_.depth() > 1) {
    pipeline_.emplace(loaded_.depth(), loaded_,
                      [this](const serve::BatchRan& ran) { return answer(ran); });
  }
  if (Status written = write_message(control_fd_, ready); !written.ok()) return written;
  tell_if_lost(ready.device, ready.status);
  return {};
}

Status Obedience::on(const serve::RunBatch& batch, Clock::time_point arrived) {
  if (!pipeline_) return answer(loaded_.run(batch, arrived));
  if (Status room = pipeline_->wait_for_room(); !room.ok()) return room;
  pipeline_->put(loaded_.begin(batch, arrived));
  return {};
}

Status Obedience::answer(const serve::BatchRan& ran) const {
  if (Status written = write_message(control_fd_, ran); !written.ok()) return written;
  tell_if_lost(ran.device, ran.status);
  return {};
}

void Obedience::tell_if_lost(partition::DeviceHealth device, const Status& why) const {
  if (device == partition::DeviceHealth::lost && tell_lost_ != nullptr) tell_lost_(why);
}

}  // namespace

Status obey(const ProxyOptions& options, MakeExecutor make_executor, const TellLost& tell_lost) {
  return Obedience(options, std::move(make_executor), tell_lost).run();
}

}  // namespace gpulet::proxy
