// Events that FrontendCore takes and effects that it returns. The host (the daemon, the simulator
// or a test) makes events of sockets, files and timers, and carries out effects in order. Values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/observe/trace.h"
#include "gpulet/planning/pipeline.h"
#include "gpulet/profile/estimate.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/values/application.h"
#include "gpulet/serve/values/served_model.h"

namespace gpulet::serve {

// Everything that a frontend serves: models, their profiles, and applications of these models. The
// frontend replaces the catalogue as a whole when one of the files behind it changes.
struct Catalogue {
  // Names are unique. A model without a SHA-256 has a file that is still being fetched from a
  // store: it serves with the version that it had before, or not at all.
  std::vector<ServedModel> models;
  std::shared_ptr<const profile::ProfileSet> profiles;  // null: none
  // The interference that plans assume; refers to the profiles. Null: no slowdown.
  std::shared_ptr<const profile::InterferenceSet> interference{};
  ApplicationList applications{};  // of these models; names are unique among both
  // Names of models that were unloaded and can be loaded again, sorted. Null: none.
  std::shared_ptr<const std::vector<std::string>> unloaded{};
  // Models that a profile lost, with its name. `profiles` still holds the figures read before.
  std::map<std::string, std::string> kept_profiles{};
  // Files that could not be read, each with its error. What was read before stays in use.
  std::vector<std::string> faults{};
};

// A violation of the protocol by a backend. Each ends the backend's connection.
enum class PeerViolation : std::uint8_t {
  before_hello = 0,    // the first message was not a Hello
  no_hello = 1,        // no Hello arrived in time
  second_hello = 2,    // a second Hello on one connection
  invalid_hello = 3,   // a Hello with impossible contents
  other_node = 4,      // a Hello for a node that its certificate does not name
  node_taken = 5,      // a Hello for a node that is connected already
  foreign_gpulet = 6,  // a claim to, or a report on, a gpulet of another backend
  foreign_batch = 7,   // a result of a batch of another backend, or of one that was never sent
  foreign_device = 8,  // a report on a device that it does not offer
  foreign_model = 9,   // a request for the file of a model that it does not serve
  malformed = 10,      // bytes that are not a message of a backend
};
inline constexpr std::size_t kPeerViolations = 11;
// The enumerator's name, as the status document and the metrics show it.
[[nodiscard]] std::string_view to_string(PeerViolation violation);

// Counts, indexed by PeerViolation.
using PeerViolations = std::array<std::uint64_t, kPeerViolations>;

struct PeerBreach {
  PeerViolation kind{};
  Status why;  // the details, for the logs of both sides
};

// ---- events

struct RequestReceived {
  ClientId client;
  InferRequest request;
  Duration age{};                // since it arrived at the first frontend
  bool forwarded = false;        // `client` is another frontend, which holds the request meanwhile
  bool delayed = false;          // Forward::delayed
  std::string member{};          // that frontend's name in the cluster
  std::uint64_t kept_bytes = 0;  // Forward::kept_bytes
};
// The client does not need the answer any more.
struct RequestCancelled {
  ClientId client;
  std::uint64_t tag = 0;
  std::string model;
};
struct ClientDisconnected {
  ClientId client;
};
struct BackendMessageReceived {
  BackendId backend;
  BackendMessage message;
};
struct BackendDisconnected {
  BackendId backend;
  Status reason;
};
// The backend's session detected a violation. The core counts it and disconnects the backend.
struct BackendViolatedProtocol {
  BackendId backend;
  PeerBreach breach;
};
struct PlanMade {
  std::uint64_t number = 0;  // of the MakePlan
  planning::PlanResult result;
  std::set<std::string> no_room{};  // of MakePlan::trials: they are not in the plan
};
// The catalogue from now on. The core finds out which models are new, changed or removed.
struct CatalogueChanged {
  Catalogue catalogue;
  // Models that an administrator asked to load: they are woken, and tried again if refused.
  std::vector<std::string> asked_for;
};
struct StepCompleted {
  std::uint64_t id = 0;  // of the StepToRun
  Result<std::vector<Tensor>> outputs;
};
// A model file in a store that is being fetched, or could not be.
struct ModelSource {
  bool failed = false;  // the last attempt; another one follows
  std::string text;     // "fetching, 40 %"
  friend bool operator==(const ModelSource&, const ModelSource&) = default;
};
// By model. Models whose file is the newest of its store, or in no store, are absent.
using ModelSources = std::map<std::string, ModelSource, std::less<>>;
struct ModelSourcesChanged {
  ModelSources sources;  // all of them
};
// The catalogue's files or an administrator's request were invalid: the catalogue stays.
struct CatalogueRejected {
  Status why;
  bool by_hand = false;  // an administrator's request
};
struct TraceUntil {  // trace every request that arrives before that time
  Time time{};
};
struct TraceEvery {  // trace every Nth request (0: off)
  std::uint32_t every = 0;
};
// This frontend leads its cluster from now on. Terms grow, and no two frontends have the same.
// Ignored unless it is one of a cluster (FrontendOptions::clustered).
struct LeadershipWon {
  Term term;
};
// It does not lead, or not any more. `leader`: the member that does; empty: none, or unknown.
struct LeadershipLost {
  std::string leader;
  std::string address{};  // of the leader, for its clients
};
// `doubtful`: another frontend may have been elected. Then only urgent plans are made.
struct LeadershipDoubted {
  bool doubtful = false;
};
// Another frontend of the cluster accepted this one's connection.
struct PeerConnected {
  std::string member;
  std::uint32_t level = 0;  // kProtocolLevel
};
struct PeerDisconnected {
  std::string member;
};
struct PeerReplied {
  std::string member;
  ForwardReply reply;
};
// The member needs the payloads of requests that were forwarded to it.
struct PeerWantsRows {
  std::string member;
  RowsWanted wanted;
};
struct PeerServes {
  std::string member;
  ServedModels served;
};
// A frontend that should lead tells which gpulets this one owns.
struct RoutesReceived {
  std::string member;
  SetRoutes routes;
};
// Another frontend tells what it served.
struct OwnerReported {
  std::string member;
  OwnerReport report;
};
struct Settle {};  // the run of events is over, or next_wake() has come
// Accept no new requests, answer those that are here, then return Drained. `hands_over`: serve new
// requests, too, by the frontends that take over if there are some; Drained comes at `earliest` or
// later, so that clients have time to leave. A later Drain without it ends that.
struct Drain {
  bool hands_over = false;
  Time earliest{};
};

using FrontendEvent =
    std::variant<RequestReceived, RequestCancelled, ClientDisconnected, BackendMessageReceived,
                 BackendDisconnected, BackendViolatedProtocol, PlanMade, CatalogueChanged,
                 CatalogueRejected, ModelSourcesChanged, StepCompleted, TraceUntil, TraceEvery,
                 LeadershipWon, LeadershipLost, LeadershipDoubted, PeerConnected, PeerDisconnected,
                 PeerReplied, PeerWantsRows, PeerServes, RoutesReceived, OwnerReported, Settle,
                 Drain>;

// ---- effects

struct ReplyToClient {
  ClientId client;
  InferReply reply;
};
// The reply to a forwarded request that this frontend does not serve: ForwardReply::elsewhere, or
// payload_needed.
struct ReplyElsewhere {
  ClientId client;
  std::uint64_t tag = 0;
  bool payload_needed = false;
};
// Ask a frontend for the payloads of requests that it forwarded.
struct AskForRows {
  ClientId client;
  RowsWanted wanted;
};
struct SendToBackend {
  BackendId backend;
  BackendCommand command;
};
struct SendToPeer {
  std::string member;
  PeerRequest message;
};
// Tell all frontends that forward to this one, and those that connect later.
struct TellPeers {
  ServedModels served;
};
struct SendModelFile {  // one piece of the file, from `offset` on
  BackendId backend;
  std::string sha256;
  std::uint64_t offset = 0;
};
// Send the reason (Refused), then close the connection. No BackendDisconnected event follows.
struct DisconnectBackend {
  BackendId backend;
  Status reason;
};
// Make a plan, on any thread, and answer with PlanMade. The profiles are immutable.
struct MakePlan {
  std::uint64_t number = 0;
  planning::PlanRequest request;
  // Models with `alone` that may share a gpulet all the same if they were not served otherwise.
  std::set<std::string> may_share;
  // Models of which no process has loaded the wanted version (serve/adapt/trials.h), in the order
  // in which they get room. They have `alone`. They are in the plan only if it serves the others no
  // worse.
  struct Trial {
    std::string model;
    bool may_share = false;  // if no device has room for a gpulet of its own
    bool replaces = false;   // its present version can serve on
  };
  std::vector<Trial> trials{};
};
struct EventNote {  // for the log
  bool warning = false;
  std::string text;
};
struct RequestTraced {  // a traced request was answered
  observe::RequestTraceRecord record;
};
// A backend has accepted a higher term than this frontend's.
struct SupersededBy {
  Term term;
};
struct Drained {};

using FrontendEffect =
    std::variant<ReplyToClient, ReplyElsewhere, AskForRows, SendToBackend, SendToPeer, TellPeers,
                 SendModelFile, DisconnectBackend, MakePlan, StepToRun, EventNote, RequestTraced,
                 SupersededBy, Drained>;
using FrontendEffects = std::vector<FrontendEffect>;

}  // namespace gpulet::serve
