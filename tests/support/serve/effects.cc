#include "tests/support/serve/effects.h"

namespace gpulet::serve::testing {
namespace {

std::string told(const ReplyToClient& effect) {
  return "reply " + std::to_string(effect.reply.tag) + " " + effect.reply.status.to_string() +
         " batch " + std::to_string(effect.reply.batch_size);
}
std::string told(const SendToBackend& effect) {
  std::string text = "backend " + std::to_string(effect.backend.value) + " " +
                     std::to_string(effect.command.index());
  if (const auto* batch = std::get_if<Batch>(&effect.command)) {
    text += " batch " + std::to_string(batch->id.value) + " gpulet " +
            std::to_string(batch->gpulet.value) + " " + batch->model + " x" +
            std::to_string(batch->count) + " within " + std::to_string(batch->start_within.count());
  } else if (const auto* create = std::get_if<CreateGpulet>(&effect.command)) {
    text += " create " + std::to_string(create->id.value) + " size " +
            std::to_string(create->size.percent);
  }
  return text;
}
std::string told(const SendModelFile& effect) { return "model " + effect.sha256; }
std::string told(const DisconnectBackend& effect) { return "drop " + effect.reason.to_string(); }
std::string told(const MakePlan& effect) {
  std::string text = "plan " + std::to_string(effect.number);
  for (const schedule::ModelDemand& demand : effect.request.demands) {
    text += " " + demand.name + "=" + std::to_string(demand.rate);
  }
  return text;
}
std::string told(const StepToRun& effect) { return "step " + std::to_string(effect.id); }
std::string told(const EventNote& effect) { return "note " + effect.text; }
std::string told(const RequestTraced& effect) {
  return "traced " + std::to_string(effect.record.id.value) + " " + effect.record.model;
}
std::string told(const ReplyElsewhere& effect) {
  return "elsewhere to client " + std::to_string(effect.client.value) + " tag " +
         std::to_string(effect.tag) + (effect.payload_needed ? " payload needed" : "");
}
std::string told(const AskForRows& effect) {
  return "ask client " + std::to_string(effect.client.value) + " for " +
         std::to_string(effect.wanted.tags.size()) + " rows of batch " +
         std::to_string(effect.wanted.batch.value);
}
std::string told(const SendToPeer& effect) { return "message to frontend " + effect.member; }
std::string told(const TellPeers& effect) {
  return "states of " + std::to_string(effect.served.models.size()) + " models";
}
std::string told(const SupersededBy& effect) {
  return "superseded by term " + std::to_string(effect.term.value);
}
std::string told(const Drained&) { return "drained"; }

}  // namespace

std::vector<std::string> told(const FrontendEffects& effects) {
  std::vector<std::string> texts;
  for (const FrontendEffect& effect : effects) {
    texts.push_back(std::visit([](const auto& one) { return told(one); }, effect));
  }
  return texts;
}

}  // namespace gpulet::serve::testing
