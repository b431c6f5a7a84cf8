// Inference: one call for an inference under way, whatever the call's form. Executor's thread only.
#pragma once

#include <functional>
#include <memory>

#include "infer_messages.h"
#include "site.h"

namespace gpulet::net::grpc_api {

class Inference : public std::enable_shared_from_this<Inference> {
 public:
  // `retry_after`: of a call that is limited.
  using OnDone =
      std::function<void(const Status&, Duration retry_after, inference::ModelInferResponse)>;

  // Judges whether the peer may. `done` is called once, perhaps from within; not after cancel().
  [[nodiscard]] static std::shared_ptr<Inference> begin(const SitePointer& site, PeerIdentity& peer,
                                                        inference::ModelInferRequest request,
                                                        OnDone done);
  void cancel();
  [[nodiscard]] bool under_way() const { return done_ != nullptr; }

 private:
  Inference(SitePointer site, OnDone done) : site_(std::move(site)), done_(std::move(done)) {}
  [[nodiscard]] Admission ask(PeerIdentity& peer, inference::ModelInferRequest&& request);
  void answered(const std::vector<serve::InferReply>& replies);
  void finish(const Status& status, Duration retry_after, inference::ModelInferResponse response);

  SitePointer site_;
  OnDone done_;
  kserve::InferCall call_;
  std::shared_ptr<const kserve::Model> model_;  // as it was when the call came
  Permit permit_;
  ClientId id_;
};

}  // namespace gpulet::net::grpc_api
