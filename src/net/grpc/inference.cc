#include "inference.h"

#include <utility>

namespace gpulet::net::grpc_api {

std::shared_ptr<Inference> Inference::begin(const SitePointer& site,
                                            inference::ModelInferRequest request, OnDone done) {
  std::shared_ptr<Inference> one(new Inference(site, std::move(done)));
  if (const Status asked = one->ask(std::move(request)); !asked.ok()) one->finish(asked, {});
  return one;
}

Status Inference::ask(inference::ModelInferRequest&& request) {
  if (!site_->open) return stopping();
  auto model = find_model(site_->host, request.model_name(), request.model_version());
  if (!model.ok()) return model.status();
  Result<kserve::InferCall> call = read_infer(std::move(request), *model.value(), site_->regions);
  if (!call.ok()) return call.status();
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
  finish(written, std::move(response));
}

void Inference::cancel() {
  if (done_ == nullptr) return;
  done_ = nullptr;
  if (site_->open) site_->host.cancel(id_);
}

void Inference::finish(const Status& status, inference::ModelInferResponse response) {
  if (const OnDone done = std::exchange(done_, nullptr)) done(status, std::move(response));
}

}  // namespace gpulet::net::grpc_api
