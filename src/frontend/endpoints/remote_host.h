// RemoteHost: the InferenceHost of one I/O thread. It describes models as they were published last,
// without their state. Belongs to the thread of `engine`.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/endpoints/infer_calls.h"
#include "frontend/frames/model_board.h"
#include "frontend/frames/remote_engine.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::frontend {

class RemoteHost final : public net::kserve::InferenceHost {
 public:
  // `engine` must outlive this object.
  explicit RemoteHost(RemoteEngine& engine)
      : models_(engine.models()), calls_(engine.io(), engine.link()) {}

  [[nodiscard]] std::shared_ptr<const net::kserve::Model> model(std::string_view name) override;
  [[nodiscard]] ClientId infer(std::vector<InferRequest> rows, OnReplies done) override {
    return calls_.infer(std::move(rows), std::move(done));
  }
  void cancel(ClientId call) override { calls_.cancel(call); }

 private:
  struct Shown {
    PublishedModelPointer published;
    std::shared_ptr<const net::kserve::Model> model;
  };

  const ModelReader& models_;
  InferCalls calls_;
  std::map<std::string, Shown, std::less<>> shown_;  // those that were asked for
};

}  // namespace gpulet::frontend
