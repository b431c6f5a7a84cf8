// bench_serve_chaos: kills, stops and restarts processes, cuts links, adds and removes models, and
// checks that every request gets one reply or one error. Details: bench/serve/README.md.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <thread>

#include "bench/serve/chaos_damage.h"
#include "bench/serve/support/inventory.h"
#include "bench/serve/support/program.h"
#include "bench/serve/support/site.h"
#include "bench/serve/support/verdicts.h"
#include "bench/support/options.h"

namespace {

using namespace gpulet;
using namespace gpulet::bench;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kBackends = 3;
constexpr Duration kCalm = std::chrono::seconds(5);  // before the damage and after it
constexpr Duration kTimeToRecover = std::chrono::seconds(60);
constexpr Duration kTimeToTidyUp = std::chrono::seconds(10);
// What a process may hold more than at first: the allocator keeps what it once needed.
constexpr double kMemoryFactor = 1.25;
constexpr double kMemorySlack_mb = 8;
constexpr std::size_t kDescriptorSlack = 3;
constexpr Duration kOverdue = std::chrono::milliseconds(50);  // after its deadline

struct Arguments {
  double seconds = 600;
  double mean_pause_s = 1.0;  // between two damages
  std::uint64_t seed = 1;
  bool models = true;
  bool timed = true;
  std::optional<std::uint32_t> io_threads;
  std::string keep;
  std::string programs;
};

std::vector<SiteModel> models() {
  return {{.name = "small", .fixed_ms = 3, .item_ms = 1.5, .slo_ms = 100, .rate = 120},
          {.name = "middle", .fixed_ms = 4, .item_ms = 3, .slo_ms = 150, .rate = 80},
          {.name = "large", .fixed_ms = 10, .item_ms = 5, .slo_ms = 300, .rate = 30},
          {.name = "fleeting", .fixed_ms = 3, .item_ms = 2, .slo_ms = 150, .rate = 20}};
}

// What all daemons of a site hold together.
struct Holdings {
  double frontend_mb = 0;
  double backends_mb = 0;
  std::size_t frontend_descriptors = 0;
  std::size_t backend_descriptors = 0;
  std::size_t threads = 0;
  std::size_t named = 0;  // control groups, shared memory, sockets
  std::size_t proxies = 0;
  std::size_t others = 0;
  std::size_t orphans = 0;  // proxies whose parent is no backend
};

Holdings holdings_of(const Site& site) {
  Holdings held;
  const std::vector<ProcessFacts> processes = processes_with(site.mark());
  for (const ProcessFacts& process : processes) {
    if (process.program == "gpulet-frontend") {
      held.frontend_mb += process.resident_mb;
      held.frontend_descriptors += process.descriptors;
      held.threads += process.threads;
    } else if (process.program == "gpulet-backend") {
      held.backends_mb += process.resident_mb;
      held.backend_descriptors += process.descriptors;
      held.threads += process.threads;
    } else if (process.program == "gpulet-proxy-simulated") {
      ++held.proxies;
      const bool has_backend =
          std::any_of(processes.begin(), processes.end(), [&](const ProcessFacts& other) {
            return other.pid == process.parent && other.program == "gpulet-backend";
          });
      if (!has_backend) ++held.orphans;
    } else {
      ++held.others;
    }
  }
  return held;
}

void print(const char* when, const Holdings& held) {
  std::printf(
      "%s: frontend %.1f MB, %zu descriptors; backends %.1f MB, %zu descriptors; %zu threads; %zu "
      "proxies, %zu orphans, %zu named things\n",
      when, held.frontend_mb, held.frontend_descriptors, held.backends_mb, held.backend_descriptors,
      held.threads, held.proxies, held.orphans, held.named);
}

class Run {
 public:
  explicit Run(const Arguments& arguments)
      : arguments_(arguments), leftovers_before_(named_leftovers()) {}

  int measure() {
    {
      Site site({.models = models(),
                 .backends = kBackends,
                 .devices_each = 2,
                 .period_s = 5,
                 .io_threads = arguments_.io_threads,
                 .local_socket = false,
                 .programs = arguments_.programs,
                 .keep = arguments_.keep});
      mark_ = site.mark();
      ChaosDamage damage(site, arguments_.seed, arguments_.models);
      damage.start_backends();
      site.wait_until_serving();
      for (const SiteModel& model : models())
        streams_.push_back(site.stream(model.name, {{Duration{}, model.rate}}));
      Traffic traffic(
          streams_,
          {.target = site.target(), .seed = arguments_.seed, .length = std::chrono::hours(100)});
      std::this_thread::sleep_for(kCalm);
      before_ = settled_holdings(site);
      do_damage(damage, traffic);
      recover(site, damage, traffic);
      after_ = settled_holdings(site);
      result_ = traffic.finish();
      print_summary(damage);
      verdicts_.hold(site.stop(), "frontend and backends end well when told to");
    }
    judge_requests();
    judge_holdings();
    judge_leftovers();
    return verdicts_.exit_code();
  }

 private:
  // Once no gpulet is on its way in or out.
  Holdings settled_holdings(Site& site) {
    const StatusView view = site.wait_until_serving(kTimeToRecover);
    const Clock::time_point deadline = Clock::now() + kTimeToTidyUp;
    Holdings held = holdings_of(site);
    // Warm processes wait beside those that serve: the first look tells how many.
    while (held.proxies > view.gpulets + proxies_apart_ && before_seen_ &&
           Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      held = holdings_of(site);
    }
    if (!before_seen_) proxies_apart_ = held.proxies - std::min(held.proxies, view.gpulets);
    before_seen_ = true;
    gpulets_ = view.gpulets;
    held.named = new_names().size();
    return held;
  }

  void do_damage(ChaosDamage& damage, const Traffic& traffic) {
    damage_from_ = traffic.elapsed();
    Random random(stream_seed(arguments_.seed, "pauses"));
    const Clock::time_point end = Clock::now() + from_seconds(arguments_.seconds);
    Clock::time_point next = Clock::now();
    while (Clock::now() < end) {
      if (Clock::now() >= next) {
        damage.one_more(end);
        next = Clock::now() + from_seconds(random.exponential(arguments_.mean_pause_s));
      }
      damage.mend_what_is_due();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  void recover(Site& site, ChaosDamage& damage, const Traffic& traffic) {
    damage.mend_everything();
    const Clock::time_point healed = Clock::now();
    damage_until_ = traffic.elapsed();
    site.wait_until(
        [](const StatusView& view) {
          return view.settled() && view.nodes == kBackends && view.models.size() == models().size();
        },
        kTimeToRecover, "serving again after the last damage was mended");
    recovered_after_ = Clock::now() - healed;
    calm_from_ = traffic.elapsed() + std::chrono::seconds(1);
    std::this_thread::sleep_for(kCalm + std::chrono::seconds(1));
    calm_until_ = traffic.elapsed() - std::chrono::seconds(1);
  }

  void print_summary(const ChaosDamage& damage) const {
    if (!damage.fills_disks()) std::printf("no disk was filled: this user may mount none\n");
    std::printf("damage in %.0f s:", arguments_.seconds);
    for (const auto& [what, times] : damage.done()) std::printf(" %s %zu,", what.c_str(), times);
    std::printf("\n%-9s %9s %9s %9s %9s %9s %9s %9s\n", "model", "sent", "served", "late",
                "dropped", "failed", "conn.lost", "unsent");
    for (std::uint32_t i = 0; i < streams_.size(); ++i) {
      std::printf("%-9s %9lld %9lld %9llu %9lld %9lld %9lld %9lld\n", streams_[i].model.c_str(),
                  count(i, Fate::served) + count(i, Fate::dropped) + count(i, Fate::failed) +
                      count(i, Fate::connection_lost) + count(i, Fate::unanswered),
                  count(i, Fate::served),
                  static_cast<unsigned long long>(
                      outcome_of(streams_, result_, {}, Duration::max(), i).late),
                  count(i, Fate::dropped), count(i, Fate::failed), count(i, Fate::connection_lost),
                  count(i, Fate::unsent));
    }
    for (const std::string& message : result_.first_messages)
      std::printf("first of its kind: %s\n", message.c_str());
    const Outcome during = outcome_of(streams_, result_, damage_from_, damage_until_);
    std::printf("within the SLO during the damage: %.2f %%; serving again %.1f s after the last\n",
                100 - 100 * during.violation(), to_seconds(recovered_after_));
    print("before", before_);
    print("after ", after_);
  }

  [[nodiscard]] long long count(std::uint32_t stream, Fate fate) const {
    return std::count_if(result_.requests.begin(), result_.requests.end(), [&](const Sent& sent) {
      return sent.fate == fate && (stream == kAllStreams || sent.stream == stream);
    });
  }

  void judge_requests() {
    const long long unanswered = count(kAllStreams, Fate::unanswered);
    verdicts_.hold(unanswered == 0, text("%lld of %zu requests without answer or error (0)",
                                         unanswered, result_.requests.size()));
    verdicts_.hold(result_.second_answers + result_.answers_to_nothing == 0,
                   text("%llu answered twice, %llu answers to nothing that was asked (0, 0)",
                        static_cast<unsigned long long>(result_.second_answers),
                        static_cast<unsigned long long>(result_.answers_to_nothing)));
    judge_deadlines();
    const Outcome calm = outcome_of(streams_, result_, calm_from_, calm_until_);
    verdicts_.hold(calm.offered > 0 && (calm.violation() < 0.01 || !arguments_.timed),
                   text("violations once everything is mended %.2f %% of %llu (under 1 %%)",
                        100 * calm.violation(), static_cast<unsigned long long>(calm.offered)));
  }

  // A request that its connection lost is settled by that; all others have an answer in time.
  void judge_deadlines() {
    std::uint64_t overdue = 0;
    Duration worst{};
    for (const Sent& sent : result_.requests) {
      if (sent.fate == Fate::unsent || sent.fate == Fate::connection_lost) continue;
      const Duration after = result_.answered_after(sent) - streams_[sent.stream].slo;
      worst = std::max(worst, after);
      if (after > kOverdue) ++overdue;
    }
    verdicts_.hold(
        overdue == 0 || !arguments_.timed,
        text("%llu answered more than 50 ms after their deadline, at worst %.0f ms after "
             "it (0)",
             static_cast<unsigned long long>(overdue), to_ms(worst)));
  }

  void judge_holdings() {
    const auto memory = [this](const char* who, double before, double after) {
      verdicts_.hold(after <= before * kMemoryFactor + kMemorySlack_mb,
                     text("memory of the %s %.1f MB, before %.1f MB", who, after, before));
    };
    memory("frontend", before_.frontend_mb, after_.frontend_mb);
    memory("backends", before_.backends_mb, after_.backends_mb);
    verdicts_.hold(after_.frontend_descriptors <= before_.frontend_descriptors + kDescriptorSlack,
                   text("descriptors of the frontend %zu, before %zu", after_.frontend_descriptors,
                        before_.frontend_descriptors));
    // Each proxy costs its backend a socket, the watch on its end and the shared memory.
    const std::size_t per_proxy = 4;
    const std::size_t more =
        after_.proxies > before_.proxies ? after_.proxies - before_.proxies : 0;
    verdicts_.hold(after_.backend_descriptors <= before_.backend_descriptors + per_proxy * more +
                                                     kBackends * kDescriptorSlack,
                   text("descriptors of the backends %zu, before %zu", after_.backend_descriptors,
                        before_.backend_descriptors));
    verdicts_.hold(after_.threads <= before_.threads + 1 + kBackends,
                   text("threads of the daemons %zu, before %zu", after_.threads, before_.threads));
    verdicts_.hold(after_.named <= before_.named + more,
                   text("control groups, shared memory and sockets %zu, before %zu", after_.named,
                        before_.named));
    verdicts_.hold(
        after_.proxies <= gpulets_ + proxies_apart_ && after_.orphans == 0 && after_.others == 0,
        text("%zu proxies for %zu gpulets and %zu warm, %zu orphans, %zu others", after_.proxies,
             gpulets_, proxies_apart_, after_.orphans, after_.others));
  }

  void judge_leftovers() {
    const Clock::time_point deadline = Clock::now() + kTimeToTidyUp;
    std::vector<ProcessFacts> left = processes_with(mark_);
    std::vector<std::string> names = new_names();
    while ((!left.empty() || !names.empty()) && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      left = processes_with(mark_);
      names = new_names();
    }
    for (const ProcessFacts& process : left)
      std::printf("left: process %d %s\n", process.pid, process.program.c_str());
    for (const std::string& name : names) std::printf("left: %s\n", name.c_str());
    verdicts_.hold(left.empty() && names.empty(),
                   text("left behind at the end: %zu processes, %zu named things (0, 0)",
                        left.size(), names.size()));
  }

  [[nodiscard]] std::vector<std::string> new_names() const {
    std::vector<std::string> names;
    for (const std::string& name : named_leftovers()) {
      if (!leftovers_before_.contains(name)) names.push_back(name);
    }
    return names;
  }

  const Arguments& arguments_;
  const std::set<std::string> leftovers_before_;
  Verdicts verdicts_;
  std::string mark_;
  std::vector<Stream> streams_;
  TrafficResult result_;
  Holdings before_;
  Holdings after_;
  bool before_seen_ = false;
  std::size_t proxies_apart_ = 0;  // warm ones
  std::size_t gpulets_ = 0;
  Duration damage_from_{};
  Duration damage_until_{};
  Duration calm_from_{};
  Duration calm_until_{};
  Duration recovered_after_{};
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  bench::Options options(
      "Kills, stops, cuts and restarts at random under load; every request is accounted for");
  options.add("--seconds", arguments.seconds, "seconds of damage").in_range(1.0, 360000.0);
  options.add("--pause", arguments.mean_pause_s, "mean seconds between faults")
      .in_range(0.05, 3600.0);
  options.add("--seed", arguments.seed, "seed of faults and arrivals");
  options.add_flag("!--no-models", arguments.models, "do not change models");
  options.add_flag("!--untimed", arguments.timed,
                   "objectives are no aim: the machine may do other work");
  options.add("--io-threads", arguments.io_threads, "of the frontend (its default)");
  options.add("--keep", arguments.keep, "keep configuration and logs in this directory");
  return run_program("chaos", options, arguments.programs, argc, argv,
                     [&] { return Run(arguments).measure(); });
}
