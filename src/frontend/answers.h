// ClientAnswers and PeerAnswers: answer what clients and other frontends ask besides inferences.
// Types of the thread of the io_context.
#pragma once

#include "frontend/cluster/model_changes.h"
#include "frontend/cluster/peers.h"
#include "frontend/endpoints/core_host.h"
#include "frontend/frames/client_sessions.h"
#include "frontend/frames/reply_router.h"
#include "frontend/observe/status_service.h"
#include "gpulet/access/gate.h"
#include "gpulet/core/ids.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

class ClientAnswers final : public ClientRequests {
 public:
  // The references must outlive this object.
  ClientAnswers(const serve::FrontendCore& core, const ReplyRouter& replies, ModelChanges& changes,
                access::Gate& gate, StatusResponder& status);

  // The other frontends. Not if the frontend is alone.
  void share_with(Peers& peers) { peers_ = &peers; }

  void on_models_request(ClientId client, const ModelsRequest& request) override;
  void on_change(ClientId client, ModelsChange change, const access::PeerIdentity& peer) override;
  void on_status_request(ClientId client, const StatusRequest& request) override;
  void on_gone(ClientId client) override;

 private:
  void answer(ClientId client, const FrontendReply& reply);

  const serve::FrontendCore& core_;
  const ReplyRouter& replies_;
  ModelChanges& changes_;
  access::Gate& gate_;
  StatusResponder& status_;
  Peers* peers_ = nullptr;  // null: the frontend is alone
};

class PeerAnswers final : public PeerQuestions {
 public:
  // Both must outlive this object.
  PeerAnswers(StatusResponder& status, CoreHost& host) : status_(status), host_(host) {}

  // Where the answers go. Call before the first question.
  void share_with(Peers& peers) { peers_ = &peers; }

  void on_status_request(ClientId client) override { status_.request(client); }
  void on_statistics_request(ClientId client, const StatisticsRequest& request) override;

 private:
  StatusResponder& status_;
  CoreHost& host_;
  Peers* peers_ = nullptr;
};

}  // namespace gpulet::frontend
