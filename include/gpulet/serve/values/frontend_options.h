// Options of FrontendCore and of its parts. Plain values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "gpulet/base/time.h"
#include "gpulet/control/node_control.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::serve {

// Bounds on the requests that the frontend holds, over all models, connections and protocols.
struct InflightLimits {
  std::uint32_t requests = 65536;
  std::uint64_t bytes = 2048ULL << 20U;  // of their inputs together
};

// Backoff of nodes and devices on which gpulets fail (Exclusions).
struct ExclusionOptions {
  Duration first = std::chrono::seconds(5);  // doubles with every failure in a row
  Duration longest = std::chrono::minutes(5);
  // A node is excluded after `short_stays` connections in a row shorter than `short_stay`.
  Duration short_stay = std::chrono::seconds(10);
  std::uint32_t short_stays = 3;
};

// Quarantine of models whose processes crash (Quarantine).
struct QuarantineOptions {
  std::uint32_t crashes = 4;  // within `window`, that begin a quarantine
  Duration window = std::chrono::seconds(60);
  Duration first = std::chrono::seconds(15);  // doubles with every relapse
  Duration longest = std::chrono::minutes(10);
  Duration relapse_within = std::chrono::minutes(2);
  Duration suspect_for = std::chrono::minutes(5);
};

// Rate estimation (Demands).
struct DemandOptions {
  Duration time_constant = std::chrono::seconds(2);        // of the fast estimate
  Duration slow_time_constant = std::chrono::seconds(20);  // of the slow one
  // The mean time, at least, between two plans that chance alone triggers: over all models, however
  // many, if requests arrive at random (a Poisson process) at the planned rates.
  Duration false_alarm_every = std::chrono::hours(24);
  Duration tick = std::chrono::milliseconds(500);  // how often the estimates are compared
  // Growth of the load to plan for, besides schedule::Headroom, until the next plan.
  double growth = 0.10;
  double give_back_below = 0.6;  // of the planned rate: below it, a smaller plan is requested
  double make_room_below = 0.9;  // the same where the plan leaves demand unserved
  double least_rate = 1.0;       // demand of an awake model without traffic, per second
  // A model without a request for this long falls asleep. 0: never.
  Duration idle_after = std::chrono::seconds(300);
};

// The least payload that stays at its entry when a request is forwarded (docs/cluster.md, "One
// trip"). Below it the two messages that this takes, and their hop, cost more than sending and
// receiving the payload once more: a frontend takes about 3 us for a message, and the kernel as
// long for 16 KB.
inline constexpr std::size_t kLeastKeptPayload = std::size_t{16} << 10U;

// Ids start at the run number shifted by this, so each run has 2^40 gpulets and batches of its own.
inline constexpr unsigned kRunShift = 40;

struct FrontendOptions {
  // Distinguishes this run from earlier ones in the ids of gpulets and batches; 1 .. 2^23.
  std::uint64_t run = 1;
  // One of several frontends, which leads only after LeadershipWon (serve/cluster/leadership.h).
  bool clustered = false;
  std::string member{};  // this frontend's name in its cluster
  // A frontend of the cluster gets no gpulets of others before it has been there for so long.
  Duration owner_settling = std::chrono::seconds(5);
  // Gpulets that share models get several owners if more requests per second than this are planned
  // for them (serve/cluster/owners.h). Infinite: they never do.
  double max_group_rate = std::numeric_limits<double>::infinity();
  std::size_t least_kept_payload = kLeastKeptPayload;
  std::string policy = "auto";
  std::optional<double> margin;  // schedule::PlanOptions::margin
  schedule::Headroom headroom = schedule::Headroom::poisson;
  double plan_budget_ms = 200;  // PlanOptions::budget_ms
  std::optional<std::uint32_t> max_devices;
  bool verify = true;     // plans keep their promise (verify/verified_plan.h)
  bool use_spare = true;  // gives gpulets the free share of their devices (schedule/scaling.h)
  // Keeps the first plan, made for the configured rates, for experiments on plans.
  bool keep_plan = false;
  Duration period = std::chrono::seconds(20);           // of the scheduler
  Duration heartbeat = std::chrono::milliseconds(500);  // a backend silent for four of them is lost
  Duration tick = std::chrono::milliseconds(500);       // of the rate estimates
  Duration least_between_plans = std::chrono::seconds(1);
  // Delay of the next plan after a node joined, because more nodes may follow.
  Duration gather = std::chrono::milliseconds(200);
  // The same where nodes bring gpulets that already serve: nothing is urgent.
  Duration gather_after_restart = std::chrono::seconds(3);
  // A plan comes into force after this time without the gpulets that are not ready. It waits
  // longer, up to 20 s, for those whose models were loaded before, where gpulets lately took
  // longer.
  Duration rollout_patience = std::chrono::seconds(3);
  // For a model to load and to end its first run, besides the time for its file
  // (serve/adapt/trials.h).
  Duration load_timeout = std::chrono::seconds(60);
  // How long a gpulet may take to leave a device that is replaced in place.
  Duration leave_within = std::chrono::seconds(5);
  // Backoff of versions without a permanent cause, and of models that failed on every node.
  Duration backoff = std::chrono::seconds(30);
  ExclusionOptions exclusions;
  // Gpulets that a joining backend brought are retired after this time unless a plan takes them up.
  Duration take_up_within = std::chrono::seconds(30);
  bool synthetic_inputs = false;  // clients may send requests without bytes, for experiments
  std::uint32_t max_queue_per_model = 4096;
  InflightLimits inflight{};
  // How long a request without a timeout of its own waits for a sleeping model, whatever its SLO.
  Duration wake_within = std::chrono::seconds(10);
  // How long after the SLO a result is delivered, counted as late. After that the request is
  // answered too_late. A request with a timeout of its own gets no grace.
  Duration late_grace = std::chrono::milliseconds(20);
  std::uint32_t trace_every = 0;  // trace every Nth request (0: off)
  bool feedback = true;           // plans follow what batches really take (serve/adapt/feedback.h)
  bool estimates = false;         // serves models without a profile (serve/adapt/estimates.h)
  DemandOptions demands;
  QuarantineOptions quarantine;
  control::Options control;  // of instances whose cores are controlled
};

}  // namespace gpulet::serve
