#include "inference.h"

#include <utility>

namespace gpulet::net::grpc_api {

std::shared_ptr<Inference> Inference::begin(const SitePointer& site, PeerIdentity& peer,
                                            inference::ModelInferRequest request, OnDone done) {
  std::shared_ptr<Inference> one(new Inference(site, std::move(done)));
  const Admission asked = one->ask(peer, std::move(request));
  if (!asked.status.ok()) one->finish(asked.status, asked.retry_after, {});
  return one;
}

Admission Inference::ask(PeerIdentity& peer, inference::ModelInferRequest&& request) {
  if (!site_->open) return {stopping()};
  Gate& gate = *site_->options.gate;
  const bool guarded = gate.guards_inference();
  if (guarded) {
    if (Admission announced = gate.announce(peer, request.model_name()); !announced.status.ok())
      return announced;
  }
  auto model = find_model(site_->host, request.model_name(), request.model_version());
  if (!model.ok()) return {model.status()};
  Result<kserve::InferCall> call = read_infer(std::move(request), *model.value(), site_->regions);
  if (!call.ok()) return {call.status()};
  if (guarded) {
    Admission entered = gate.enter(peer, model.value()->name, call.value().requests.size());
    if (!entered.status.ok()) return entered;
    permit_ = std::move(entered.permit);
  }
  call_ = std::move(call).value();
  model_ = std::move(model).value();
  id_ =
      site_->host.infer(std::exchange(call_.requests, {}),
                        [self = shared_from_this()](const std::vector<serve::InferReply>& replies) {
                          self->answered(replies);
                        });
  return {};
}

void Inference::answered(const std::vector<serve::InferReply>& replies) {
  inference::ModelInferResponse response;
  const Status written = write_infer(call_, *model_, replies, site_->regions, response);
  finish(written, {}, std::move(response));
}

void Inference::cancel() {
  if (done_ == nullptr) return;
  done_ = nullptr;
  permit_.reset();
  if (site_->open) site_->host.cancel(id_);
}

void Inference::finish(const Status& status, Duration retry_after,
                       inference::ModelInferResponse response) {
  permit_.reset();
  if (const OnDone done = std::exchange(done_, nullptr))
    done(status, retry_after, std::move(response));
}

}  // namespace gpulet::net::grpc_api
