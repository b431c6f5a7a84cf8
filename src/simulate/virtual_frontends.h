// VirtualFrontends: the cores of the frontends, and the connections over which they forward to each
// other. They are members f0, f1, ... of one cluster, each connected to every other. Pure; one
// thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/schedule/check.h"
#include "gpulet/serve/frontend_core.h"
#include "gpulet/simulate/simulation.h"
#include "simulate/agenda.h"
#include "simulate/virtual_links.h"

namespace gpulet::simulate {

// The clients of a simulation. They must not call it from these functions.
class VirtualClients {
 public:
  virtual ~VirtualClients() = default;
  // The time of the next request, or kNever.
  [[nodiscard]] virtual Time next_request() const = 0;
  // REQUIRES: next_request() has come. The tag is unique among the requests in flight.
  virtual InferRequest take_request() = 0;
  // How long the request of the last take_request() has waited elsewhere before.
  [[nodiscard]] virtual Duration age_of_taken() const { return {}; }
  virtual void answered(InferReply reply, Time now) = 0;
  virtual void plan_in_force(const schedule::Plan& plan, Time now) = 0;
};

// Sees every event of a frontend's core and the effects that it returned.
using FrontendObserver =
    std::function<void(const serve::FrontendEvent&, Time, const serve::FrontendEffects&)>;

// What the frontends told so far, all of them together.
struct Told {
  bool drained = false;
  std::vector<std::string> notes{};
  std::vector<Term> superseded{};             // the terms of all SupersededBy
  std::vector<std::uint64_t> plans{};         // the numbers of all plans
  std::vector<schedule::Violation> faults{};  // the findings of check() about the last plan
};

class VirtualFrontends {
 public:
  // The references outlive the object.
  VirtualFrontends(const VirtualTimings& timings, const Knowledge& knowledge, ServedLoad served,
                   VirtualClients& clients, Agenda& agenda, VirtualLinks& links)
      : timings_(timings),
        knowledge_(knowledge),
        served_(std::move(served)),
        clients_(clients),
        agenda_(agenda),
        links_(links) {}

  // Connected to the other frontends, and to no node.
  FrontendIndex add(serve::FrontendOptions options);
  // Kills the process: its connections to other frontends end.
  void kill(FrontendIndex frontend);
  // Between these two, the frontend takes no event, as after SIGSTOP. The others give up their
  // connections to it after kPeerSilence.
  void pause(FrontendIndex frontend);
  void resume(FrontendIndex frontend);

  [[nodiscard]] std::size_t size() const { return frontends_.size(); }
  [[nodiscard]] bool runs(FrontendIndex frontend) const {
    return frontends_[frontend].core != nullptr;
  }
  // REQUIRES: it runs.
  [[nodiscard]] const serve::FrontendCore& core(FrontendIndex frontend) const {
    return *frontends_[frontend].core;
  }

  // Does nothing where the frontend does not run.
  void feed(FrontendIndex frontend, serve::FrontendEvent event);
  // When a frontend wants to wake first.
  [[nodiscard]] Time next_wake() const;
  // Ends the turn of every frontend that took an event since the last one, or is to wake.
  void settle();

  void observe(FrontendObserver observer) { observer_ = std::move(observer); }
  [[nodiscard]] const Told& told() const { return told_; }

  static constexpr Duration kPeerSilence = std::chrono::seconds(2);

 private:
  struct Frontend {
    std::unique_ptr<serve::FrontendCore> core;  // null: killed
    bool settle_due = false;
    bool paused = false;
    std::uint64_t pauses = 0;
    std::deque<serve::FrontendEvent> held{};  // while it is paused
    ServedModels told{};                      // in its last TellPeers
  };
  // The connection of one frontend to another, over which it forwards.
  struct PeerLink {
    FrontendIndex from = 0;
    FrontendIndex to = 0;
    ClientId client;  // of `from` at `to`
  };
  // Ids below are of the clients.
  static constexpr std::uint64_t kFirstPeerClient = std::uint64_t{1} << 32U;

  [[nodiscard]] static std::string member_of(FrontendIndex frontend) {
    return "f" + std::to_string(frontend);
  }
  [[nodiscard]] Time arrival() const { return agenda_.now() + timings_.link; }

  void connect_peers(FrontendIndex one, FrontendIndex other);
  void connect_peer(FrontendIndex from, FrontendIndex to);
  // Ends all connections from and to the frontend.
  void disconnect_peers(FrontendIndex frontend);
  // Null: not connected (any more).
  [[nodiscard]] const PeerLink* peer_link(ClientId client) const;
  void reply_to_peer(ClientId client, ForwardReply reply);
  void deliver(const PeerLink& link, const PeerRequest& message);

  // One overload for each effect of frontends_[acting_].
  void carry_out(serve::ReplyToClient& effect);
  void carry_out(const serve::ReplyElsewhere& effect);
  void carry_out(serve::AskForRows& effect);
  void carry_out(serve::SendToPeer& effect);
  void carry_out(serve::TellPeers& effect);
  void carry_out(serve::SendToBackend& effect) {
    links_.send(acting_, effect.backend, std::move(effect.command));
  }
  void carry_out(const serve::SendModelFile& effect) {
    links_.send_file(acting_, effect.backend, effect.sha256);
  }
  void carry_out(const serve::DisconnectBackend& effect) { links_.close(acting_, effect.backend); }
  void carry_out(const serve::MakePlan& effect);
  void carry_out(const serve::StepToRun& effect);
  void carry_out(serve::EventNote& effect) { told_.notes.push_back(std::move(effect.text)); }
  void carry_out(const serve::RequestTraced& /*effect*/) {}
  void carry_out(const serve::SupersededBy& effect) { told_.superseded.push_back(effect.term); }
  void carry_out(const serve::Drained& /*effect*/) { told_.drained = true; }

  const VirtualTimings& timings_;
  const Knowledge& knowledge_;
  const ServedLoad served_;  // of a frontend at its start
  VirtualClients& clients_;
  Agenda& agenda_;
  VirtualLinks& links_;
  FrontendObserver observer_;  // may be empty
  std::deque<Frontend> frontends_;
  std::vector<PeerLink> peer_links_;
  std::uint64_t next_peer_client_ = kFirstPeerClient;
  FrontendIndex acting_ = 0;        // the frontend whose effects are being carried out
  serve::FrontendEffects effects_;  // kept to reuse its memory
  Told told_;
};

}  // namespace gpulet::simulate
