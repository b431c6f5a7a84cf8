// What the frontend's core is told, and what it wants done. Plain values. The shell (frontend room)
// turns sockets, files and timers into events, and carries out effects in their order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/observe/trace.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/application_steps.h"
#include "gpulet/serve/applications.h"
#include "gpulet/serve/catalogue.h"
#include "gpulet/serve/messages.h"
#include "gpulet/serve/peer_rules.h"

namespace gpulet::serve {

// ---- events

struct ClientSaid {
  ClientId client;
  InferRequest request;
};
struct ClientGone {
  ClientId client;
};
struct BackendSaid {
  BackendId backend;
  BackendMessage message;
};
struct BackendGone {
  BackendId backend;
  Status reason;
};
// The backend's session saw a breach: the core counts it, drops the backend and loses it.
struct BackendBroke {
  BackendId backend;
  PeerBreach breach;
};
struct PlanMade {
  std::uint64_t number = 0;  // of the MakePlan it answers
  schedule::Plan plan;
  std::vector<std::string> faults;      // what check() said; such a plan is not used
  schedule::Explanation explanation{};  // of the plan; empty where it has faults
};
// The whole of what is to be served from now on. The core finds out what is new, what has another
// version, what has gone.
struct CatalogueChanged {
  Catalogue catalogue;
  // Names that somebody asked for: awake from now on, and tried again where they were refused.
  std::vector<std::string> asked_for;
};
struct StepDone {  // answers a StepToRun
  std::uint64_t id = 0;
  Result<std::vector<Tensor>> outputs;
};
// The files that say what to serve could not be read, or what somebody asked for by hand is wrong:
// everything stays as it is.
struct CatalogueRefused {
  Status why;
  bool by_hand = false;
};
struct TraceUntil {  // every request that comes from now on and before that time is Traced
  Time time{};
};
struct TraceEvery {  // every so manieth request is Traced from now on; 0: none of itself
  std::uint32_t every = 0;
};
struct Settle {};  // a run of events is over, or next_wake() has come
struct Drain {};   // take nothing new, answer what is here, then say Drained

using FrontendEvent = std::variant<ClientSaid, ClientGone, BackendSaid, BackendGone, BackendBroke,
                                   PlanMade, CatalogueChanged, CatalogueRefused, StepDone,
                                   TraceUntil, TraceEvery, Settle, Drain>;

// ---- effects

struct ReplyToClient {
  ClientId client;
  InferReply reply;
};
struct TellBackend {
  BackendId backend;
  BackendCommand command;
};
struct SendModelFile {  // the piece of it that begins there
  BackendId backend;
  std::string sha256;
  std::uint64_t offset = 0;
};
// Tell it why (Refused), then close the connection. No BackendGone follows.
struct DropBackend {
  BackendId backend;
  Status reason;
};
struct MakePlan {
  std::uint64_t number = 0;
  schedule::Cluster cluster;
  // Those of its devices that take no new gpulets now, and what serves there and stays as it is.
  std::set<schedule::DeviceKey> closed;
  std::vector<schedule::PlannedGpulet> kept;
  std::vector<schedule::ModelDemand> demands;
  std::optional<schedule::Plan> current;
  schedule::PlanOptions options;
  // As they were when the plan was asked for: the planner may look at them on a thread of its own.
  std::shared_ptr<const profile::ProfileSet> profiles;           // never null
  std::shared_ptr<const profile::InterferenceSet> interference;  // refers to them; may be null
  // As few devices as the scaling loop finds enough; otherwise the policy may use all.
  bool scale = true;
  // CPUs get executables for what gpulets cannot serve in time; the policy has the other devices.
  bool spill = false;
};
struct Note {  // for the log and the status
  bool warning = false;
  std::string text;
};
struct Traced {  // a request was answered, and is one of those to be traced
  observe::RequestTraceRecord record;
};
struct Drained {};

using FrontendEffect = std::variant<ReplyToClient, TellBackend, SendModelFile, DropBackend,
                                    MakePlan, StepToRun, Note, Traced, Drained>;
using FrontendEffects = std::vector<FrontendEffect>;

}  // namespace gpulet::serve
