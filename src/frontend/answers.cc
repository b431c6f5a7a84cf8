#include "frontend/answers.h"

#include <cstddef>
#include <utility>

#include "frontend/frames/sessions.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::frontend {
namespace {

constexpr std::size_t kModelsPerPage = 128;

}  // namespace

ClientAnswers::ClientAnswers(const serve::FrontendCore& core, const ReplyRouter& replies,
                             ModelChanges& changes, access::Gate& gate, StatusResponder& status)
    : core_(core), replies_(replies), changes_(changes), gate_(gate), status_(status) {}

void ClientAnswers::answer(ClientId client, const FrontendReply& reply) {
  replies_.send(client, protocol::encode(reply));
}

void ClientAnswers::on_models_request(ClientId client, const ModelsRequest& request) {
  answer(client, core_.models_after(request.after, kModelsPerPage));
}

void ClientAnswers::on_change(ClientId client, ModelsChange change,
                              const access::PeerIdentity& peer) {
  const access::CallNeeds needs = needs_of(change);
  changes_.change(std::move(change), [this, client, needs, peer](ModelsChanged changed) {
    gate_.called(needs, peer, changed.status);
    answer(client, std::move(changed));
  });
}

void ClientAnswers::on_status_request(ClientId client, const StatusRequest& request) {
  const std::string elsewhere = request.local ? std::string() : core_.served_by();
  if (elsewhere.empty()) return status_.request(client);
  peers_->ask_status(elsewhere,
                     [this, client](StatusReply reply) { answer(client, std::move(reply)); });
}

void ClientAnswers::on_gone(ClientId client) { status_.forget(client); }

void PeerAnswers::on_statistics_request(ClientId client, const StatisticsRequest& request) {
  host_.own_statistics(request.model, [this, client, tag = request.tag](const auto& statistics) {
    peers_->reply_statistics(client, {tag, *statistics});
  });
}

}  // namespace gpulet::frontend
