// Forwarder: requests of this frontend's clients for models that another frontend of its cluster
// serves.
//
// A request goes to the member that serves its model (RouteTable). It waits while none is known, or
// while that one is not connected. It is sent again if its receiver answers that it is served
// elsewhere, or if the connection ends: inference has no side effects, so a request may run twice,
// but it gets one answer. If this frontend serves the model in the meantime, or has the turn for a
// divided model, the request returns to its own queues (take_local).
//
// A large payload stays here (kept): the member gets the request without it, and asks for it when
// the request is in a batch (rows_for). If it did not reach the node, the member answers that it
// needs the payload, and the request is sent once more, with it. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/frontend_events.h"
#include "gpulet/serve/values/frontend_options.h"
#include "gpulet/serve/values/frontend_status.h"
#include "serve/dispatch/deadlines.h"
#include "serve/models/model_registry.h"
#include "serve/values/route_table.h"

namespace gpulet::serve {

// A request is not sent again after this many connections ended under it: it may be the cause.
inline constexpr std::uint32_t kMostLostPeers = 3;
// The pause after an answer "elsewhere" from the member that still counts as the one that serves.
inline constexpr Duration kRerouteAfter = std::chrono::milliseconds(20);
// A member that needed so many payloads within a second gets those of all requests for some
// seconds: each needed payload costs a message there and back, and perhaps a batch.
inline constexpr std::uint32_t kMostNeededPayloads = 16;
inline constexpr Duration kPayloadsToMemberFor = std::chrono::seconds(5);

// A request that this frontend should queue itself.
struct LocalRequest {
  std::string model;
  Request request;
  bool delayed = false;  // as in Forwarder::forward
};

class Forwarder {
 public:
  // All outlive it.
  Forwarder(const FrontendOptions& options, ModelRegistry& models, ResponseWriter& responses,
            RouteTable& routes);

  // ---- routes

  [[nodiscard]] const RouteTable& routes() const { return routes_; }
  // `member` leads; empty: none, or none that is known.
  void set_leader(const std::string& member, Time now, FrontendEffects& effects);
  // This frontend leads from now on.
  void lead(Time now, FrontendEffects& effects);
  // The RouteTable changed: sends what waits for that, or returns it (take_local).
  void routes_changed(Time now, FrontendEffects& effects);
  // The member that leads is connected.
  [[nodiscard]] bool leader_connected() const {
    return !routes_.leads() && peers_.contains(routes_.leader());
  }
  // What the member that leads says about the models. Null: unknown.
  [[nodiscard]] const ServedModels* served() const;

  // `level`: kProtocolLevel of the member.
  void on_connected(const std::string& member, std::uint32_t level, Time now,
                    FrontendEffects& effects);
  void on_disconnected(const std::string& member, Time now, FrontendEffects& effects);
  void on_served_models(const std::string& member, ServedModels served, Time now,
                        FrontendEffects& effects);

  // ---- requests

  // Another member serves the model. `delayed`: the request has waited in queues of a frontend that
  // does not serve it any more.
  void forward(std::string model, Request&& request, bool delayed, Time now,
               FrontendEffects& effects);
  void on_reply(const std::string& member, ForwardReply reply, Time now, FrontendEffects& effects);
  // The payloads that the member asks for, of the requests that are with it without them.
  [[nodiscard]] Rows rows_for(const std::string& member, const RowsWanted& wanted) const;
  // Forgets the requests of a client that disconnected.
  void client_gone(ClientId client, FrontendEffects& effects);
  // Forgets one request.
  void withdraw(ClientId client, std::uint64_t tag, FrontendEffects& effects);
  // Sends what may be sent again by now, and answers what is overdue.
  void settle(Time now, FrontendEffects& effects);
  // When settle() is due without a further event.
  [[nodiscard]] Time next_wake() const;
  // Removes and returns requests for the own queues: of models that this frontend serves by now.
  [[nodiscard]] std::vector<LocalRequest> take_local();

  // No request waits or is with another frontend.
  [[nodiscard]] bool idle() const { return held_.empty() && local_.empty(); }
  [[nodiscard]] ForwardingStatus status() const;

 private:
  struct Held {
    std::string model;
    Request request;
    std::string sent_to;                // empty: waits
    std::vector<TensorSpec> outputs{};  // that the reply must have; known once it is sent
    Time waits_until{};                 // for its next turn; kNever: until the routes change
    Time answer_by = kNever;
    std::uint32_t lost_peers = 0;
    bool delayed = false;
    bool kept = false;            // its payload was not sent to `sent_to`
    bool payload_needed = false;  // its payload goes with it from now on
  };
  // A member that is connected.
  struct Peer {
    std::uint32_t level = 0;
    std::optional<ServedModels> served{};
    Time payloads_until{};  // until then, all requests take their payloads with them
    Time needed_since{};    // payloads, as follows
    std::uint32_t needed = 0;
  };
  using Tag = std::uint64_t;  // of a Forward

  void follow_served();
  // Where a request for the model goes next. Neither here nor a member: it waits.
  struct Target {
    bool here = false;
    const std::string* member = nullptr;  // a connected one
  };
  [[nodiscard]] Target target_for(const std::string& model) const;
  [[nodiscard]] std::vector<Tag> tags_of(ClientId client) const;
  // The last time for an answer of a request that waits for a frontend, or was sent to one.
  [[nodiscard]] Time answer_by(const Held& held) const;
  void set_deadline(Tag tag, Held& held);
  // The member needs one more payload.
  static void note_needed(Peer& peer, Time now);
  // Whether the payload stays here.
  [[nodiscard]] bool keeps(const Held& held, const Peer& peer, Time now) const;
  void send_waiting(Time now, FrontendEffects& effects);
  // REQUIRES: the request is in no set of waiting ones.
  void send_or_wait(Tag tag, Held& held, Time now, FrontendEffects& effects);
  void send(Tag tag, Held& held, const std::string& member, Time now, FrontendEffects& effects);
  void wait(Tag tag, Held& held, Time until);
  // Removes the request from all sets.
  [[nodiscard]] Held take(Tag tag);
  void cancel(Tag tag, FrontendEffects& effects);
  void answer(Tag tag, InferReply reply, FrontendEffects& effects);

  const FrontendOptions& options_;
  ModelRegistry& models_;
  ResponseWriter& responses_;
  RouteTable& routes_;
  std::map<std::string, Peer> peers_;
  Tag next_tag_ = 1;
  std::unordered_map<Tag, Held> held_;
  std::set<std::pair<Time, Tag>> waiting_;  // by their next turn
  std::set<std::pair<ClientId, Tag>> by_client_;
  Deadlines<Tag> deadlines_;
  std::vector<LocalRequest> local_;
  ForwardingStatus counts_;
};

}  // namespace gpulet::serve
