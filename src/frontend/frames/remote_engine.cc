#include "frontend/frames/remote_engine.h"

#include <utility>

namespace gpulet::frontend {

Status RemoteEngine::accepts(const InferRequest& request, std::size_t payload_bytes) const {
  const PublishedModels::Entry* const entry = models_.find(request.model);
  return accepts_payload(entry == nullptr ? nullptr : &entry->model->model, request, payload_bytes);
}

void RemoteEngine::on_models_request(ClientId client, const ModelsRequest& request) {
  engine_.inbox.call([&requests = engine_.requests, client, request] {
    requests.on_models_request(client, request);
  });
}

void RemoteEngine::on_change(ClientId client, ModelsChange change,
                             const access::PeerIdentity& peer) {
  engine_.inbox.call([&requests = engine_.requests, client, change = std::move(change), peer] {
    requests.on_change(client, change, peer);
  });
}

void RemoteEngine::on_status_request(ClientId client, const StatusRequest& request) {
  engine_.inbox.call([&requests = engine_.requests, client, request] {
    requests.on_status_request(client, request);
  });
}

void RemoteEngine::on_gone(ClientId client) {
  engine_.inbox.call([&requests = engine_.requests, client] { requests.on_gone(client); });
}

}  // namespace gpulet::frontend
