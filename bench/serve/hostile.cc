// bench_serve_hostile: an attacker beside an honest load on a frontend and two backends. Each
// attack for itself on a site of its own, then all at once: the honest load alone first, then
// attacked. bench/serve/README.md says what is held.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/serve/hostile_frames.h"
#include "bench/serve/support/comparison.h"
#include "bench/serve/support/inventory.h"
#include "bench/serve/support/program.h"
#include "bench/serve/support/site.h"
#include "bench/serve/support/verdicts.h"
#include "bench/support/options.h"
#include "gpulet/base/sha256.h"

namespace {

using namespace gpulet;
using namespace gpulet::bench;

constexpr Duration kWarmUp = std::chrono::seconds(1);  // of each part, not counted
constexpr Duration kTimeToEnd = std::chrono::seconds(10);
constexpr Duration kTimeToRecover = std::chrono::seconds(30);
constexpr double kProbesAnswered = 0.95;
// Of a daemon's memory after an attack to that before it.
constexpr double kMemoryBack = 1.2;
constexpr auto kTimeToGiveBack = std::chrono::seconds(15);
constexpr const char* kPython = "/usr/bin/python3";

const std::vector<std::string> kAttacks = {"announce", "silent",  "gzip",    "status",
                                           "pages",    "readers", "frames",  "churn",
                                           "backend",  "grpc",    "headers", "packed"};

struct Arguments {
  double seconds = 60;
  double each_seconds = 20;
  std::string tls = "both";
  std::vector<std::string> only;
  double strength = 1;
  double cpu = 0.15;
  std::uint64_t seed = 1;
  std::optional<std::uint32_t> io_threads;
  std::string keep;
  std::string programs;
};

std::vector<SiteModel> models() {
  return {{.name = "small", .fixed_ms = 3, .item_ms = 1.5, .slo_ms = 100, .rate = 150},
          {.name = "picture",
           .fixed_ms = 4,
           .item_ms = 3,
           .slo_ms = 150,
           .rate = 60,
           .inputs = {{"x", DataType::uint8, {64 << 10}}}}};
}

// What became of fresh connections to a port.
struct Probes {
  std::uint64_t asked = 0;
  std::uint64_t failed = 0;
  double worst_ms = 0;
};

struct Part {  // of a run
  std::vector<LoadSecond> seconds;
  std::map<std::string, Probes> probes;
  std::string attacker;  // what it did, in words
  double attacker_cpu_s = 0;
  Duration lag{};
  std::uint64_t breaches = 0;  // requests with no answer, or two
};

nlohmann::json last_line(const DaemonProcess& process) {
  std::istringstream log(process.log());
  std::string last;
  for (std::string line; std::getline(log, line);) {
    if (line.starts_with("{")) last = line;
  }
  if (last.empty()) throw std::runtime_error("the attacker did not report: " + process.log());
  return nlohmann::json::parse(last);
}

class Scene {
 public:
  Scene(const Arguments& arguments, bool tls, const std::string& name)
      : arguments_(arguments),
        site_({.models = models(),
               .backends = 2,
               .http = true,
               .grpc = true,
               .metrics = true,
               .io_threads = arguments.io_threads,
               .tls = tls,
               .programs = arguments.programs,
               .keep = arguments.keep.empty() ? std::filesystem::path()
                                              : std::filesystem::path(arguments.keep) /
                                                    (name + (tls ? "-tls" : ""))}) {
    const std::string small = models().front().name;
    write_attack_frames(frames(), {small, sha256_of(Site::model_text(small, 0)), "picture"});
    if (tls) evil_ = site_.issue("evil", {"evil"});
    site_.start_backends();
    site_.wait_until_serving();
    for (const SiteModel& model : models())
      streams_.push_back(site_.stream(model.name, {{Duration{}, model.rate}}));
  }

  // The honest load for so long, beside the attacks.
  Part play(const std::vector<std::string>& attacks, double seconds) {
    const auto probe = start({"probe"}, "probe");
    std::unique_ptr<DaemonProcess> attacker;
    if (!attacks.empty()) attacker = start(attacks, "attacker");
    const Duration length = kWarmUp + from_seconds(seconds);
    Traffic traffic(streams_,
                    {.target = site_.target(), .seed = arguments_.seed, .length = length});
    const TrafficResult result = traffic.run_out();
    Part part;
    part.seconds = seconds_of(streams_, result, kWarmUp, length);
    part.lag = result.sender_lag_p99;
    part.breaches = result.second_answers + result.answers_to_nothing +
                    static_cast<std::uint64_t>(std::count_if(
                        result.requests.begin(), result.requests.end(),
                        [](const Sent& sent) { return sent.fate == Fate::unanswered; }));
    if (attacker != nullptr) {
      const nlohmann::json report = end(*attacker);
      part.attacker_cpu_s = report.at("cpu_s").get<double>();
      part.attacker = report.at("done").dump();
    }
    const nlohmann::json probed = end(*probe).at("probes");
    for (const auto& [port, told] : probed.items())
      part.probes[port] = {told.at("asked").get<std::uint64_t>(),
                           told.at("failed").get<std::uint64_t>(),
                           told.at("worst_ms").get<double>()};
    return part;
  }

  // Resident memory of the frontend.
  [[nodiscard]] double frontend_mb() {
    for (const ProcessFacts& process : processes_with(site_.mark())) {
      if (process.pid == site_.frontend().pid()) return process.resident_mb;
    }
    return 0;
  }

  // The same once it is at most `aim_mb`, or after the time in which memory is given back.
  [[nodiscard]] double frontend_mb_at_rest(double aim_mb) {
    const auto deadline = std::chrono::steady_clock::now() + kTimeToGiveBack;
    double resident_mb = frontend_mb();
    while (resident_mb > aim_mb && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      resident_mb = frontend_mb();
    }
    return resident_mb;
  }

  // All of it is still there, and serves.
  bool recovers() {
    if (!site_.frontend().alive() || !site_.backend(0).alive() || !site_.backend(1).alive())
      return false;
    try {
      site_.wait_until([](const StatusView& view) { return view.settled() && view.nodes == 2; },
                       kTimeToRecover, "serving with two nodes after the attack");
      return true;
    } catch (const std::runtime_error& error) {
      std::printf("%s\n", error.what());
      return false;
    }
  }

 private:
  [[nodiscard]] std::filesystem::path frames() const { return site_.directory() / "frames"; }

  [[nodiscard]] std::unique_ptr<DaemonProcess> start(const std::vector<std::string>& what,
                                                     const std::string& name) const {
    const auto port = [](const char* of, std::uint16_t number) {
      return std::string(of) + "=" + std::to_string(number);
    };
    std::vector<std::string> words{
        GPULET_ATTACKER,
        "--ports",
        port("client", site_.target().endpoint.port) + "," + port("backend", site_.backend_port()) +
            "," + port("http", site_.http_port()) + "," + port("grpc", site_.grpc_port()) + "," +
            port("metrics", site_.metrics_port()),
        "--frames",
        frames().string(),
        "--strength",
        std::to_string(arguments_.strength),
        "--cpu",
        std::to_string(arguments_.cpu)};
    if (!evil_.certificate.empty()) {
      for (const auto& [option, file] :
           {std::pair("--authority", evil_.authority),
            std::pair("--certificate", evil_.certificate), std::pair("--key", evil_.key)}) {
        words.emplace_back(option);
        words.push_back(file.string());
      }
    }
    words.insert(words.end(), what.begin(), what.end());
    return std::make_unique<DaemonProcess>(kPython, words, site_.directory() / (name + ".log"),
                                           site_.mark());
  }

  static nlohmann::json end(DaemonProcess& process) {
    process.signal(SIGTERM);
    if (!process.wait_for_end(kTimeToEnd)) throw std::runtime_error("the attacker does not end");
    return last_line(process);
  }

  const Arguments& arguments_;
  Site site_;
  config::TlsFiles evil_;
  std::vector<Stream> streams_;
};

class Run {
 public:
  explicit Run(const Arguments& arguments) : arguments_(arguments) {}

  int measure() {
    for (const bool tls : {false, true}) {
      if (arguments_.tls == (tls ? "off" : "on")) continue;
      print_head(tls);
      const auto wanted = [this](const std::string& name) {
        return arguments_.only.empty() || std::find(arguments_.only.begin(), arguments_.only.end(),
                                                    name) != arguments_.only.end();
      };
      for (const std::string& attack : kAttacks) {
        if (wanted(attack)) measure(attack, {attack}, tls, arguments_.each_seconds);
      }
      if (wanted("all")) measure("all", kAttacks, tls, arguments_.seconds);
    }
    std::printf("\n");
    for (const Judgement& one : judgements_) verdicts_.hold(one.met, one.figure);
    return verdicts_.exit_code();
  }

 private:
  struct Judgement {
    bool met;
    std::string figure;
  };

  void print_head(bool tls) const {
    std::printf(
        "\n%s; each attack %.0f s, all at once %.0f s; strength %.2g, attacker at most %.2g of a "
        "core at nice 19\n%-9s %9s %9s %9s | %9s %9s %9s %9s %9s | %8s %8s  %s\n",
        tls ? "with TLS" : "without TLS", arguments_.each_seconds, arguments_.seconds,
        arguments_.strength, arguments_.cpu, "attack", "p50 ms", "p99 ms", "viol %", "p50 ms",
        "p99 ms", "at most", "viol %", "at most", "att. CPU", "probes", "what the attacker did");
  }

  void measure(const std::string& name, const std::vector<std::string>& attacks, bool tls,
               double seconds) {
    Scene scene(arguments_, tls, name);
    const Part quiet = scene.play({}, seconds);
    const double before_mb = scene.frontend_mb();
    const Part attacked = scene.play(attacks, seconds);
    const double at_end_mb = scene.frontend_mb();
    const LoadFigures alone = figures_of(quiet.seconds, arguments_.seed);
    const LoadFigures beside = figures_of(attacked.seconds, arguments_.seed + 1);
    const Allowed limits = allowed(alone, beside);
    Probes probes;
    for (const auto& [port, one] : attacked.probes) {
      probes.asked += one.asked;
      probes.failed += one.failed;
    }
    std::printf(
        "%-9s %9.2f %9.2f %9.3f | %9.2f %9.2f %9.2f %9.3f %9.3f | %6.2f s %3llu/%-4llu  %s\n",
        name.c_str(), alone.p50_ms, alone.p99_ms, 100 * alone.violation, beside.p50_ms,
        beside.p99_ms, limits.p99_ms, 100 * beside.violation, 100 * limits.violation,
        attacked.attacker_cpu_s, static_cast<unsigned long long>(probes.asked - probes.failed),
        static_cast<unsigned long long>(probes.asked), attacked.attacker.c_str());
    std::fflush(stdout);
    const std::string which = name + (tls ? " with TLS" : " without TLS");
    judge(which, alone, beside, limits);
    judge_probes(which, attacked.probes);
    keep(attacked.breaches == 0 && scene.recovers(),
         text("%s: %llu requests with no answer or two (0), and all daemons serve afterwards",
              which.c_str(), static_cast<unsigned long long>(attacked.breaches)));
    const double after_mb = scene.frontend_mb_at_rest(kMemoryBack * before_mb);
    keep(after_mb <= kMemoryBack * before_mb,
         text("%s: the frontend has %.0f MB after the attack, %.0f MB at its end, %.0f MB before "
              "(at most 1.2 times as much)",
              which.c_str(), after_mb, at_end_mb, before_mb));
    if (std::max(quiet.lag, attacked.lag) > std::chrono::milliseconds(10)) {
      std::printf("          the load itself was late: p99 %.1f ms alone, %.1f ms attacked\n",
                  to_ms(quiet.lag), to_ms(attacked.lag));
    }
  }

  void judge(const std::string& which, const LoadFigures& alone, const LoadFigures& beside,
             const Allowed& limits) {
    keep(beside.p99_ms <= limits.p99_ms,
         text("%s: p99 %.2f ms, alone %.2f ms (at most %.2f ms)", which.c_str(), beside.p99_ms,
              alone.p99_ms, limits.p99_ms));
    keep(beside.violation <= limits.violation,
         text("%s: violations %.3f %%, alone %.3f %% (at most %.3f %%)", which.c_str(),
              100 * beside.violation, 100 * alone.violation, 100 * limits.violation));
  }

  void judge_probes(const std::string& which, const std::map<std::string, Probes>& probes) {
    bool met = true;
    std::string figures;
    for (const auto& [port, one] : probes) {
      const double answered = one.asked == 0 ? 0
                                             : static_cast<double>(one.asked - one.failed) /
                                                   static_cast<double>(one.asked);
      met = met && answered >= kProbesAnswered;
      figures +=
          text("%s %.0f %% (at worst after %.0f ms), ", port.c_str(), 100 * answered, one.worst_ms);
    }
    keep(met, text("%s: fresh connections answered within 1 s: %sat least 95 %%", which.c_str(),
                   figures.c_str()));
  }

  void keep(bool met, std::string figure) { judgements_.push_back({met, std::move(figure)}); }

  const Arguments& arguments_;
  std::vector<Judgement> judgements_;
  Verdicts verdicts_;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  bench::Options options("What attackers cost an honest load");
  options.add("--seconds", arguments.seconds, "of the load alone, and under all attacks at once")
      .in_range(3.0, 3600.0);
  options.add("--each", arguments.each_seconds, "the same of each attack for itself")
      .in_range(3.0, 3600.0);
  options.add("--tls", arguments.tls).one_of({"on", "off", "both"});
  std::vector<std::string> names = kAttacks;
  names.emplace_back("all");
  options.add("--only", arguments.only, "some attacks, or all at once: \"all\"").one_of(names);
  options.add("--strength", arguments.strength, "times as many connections and askers")
      .in_range(0.01, 4.0);
  options.add("--attacker-cpu", arguments.cpu, "at most that share of a core for the attacker")
      .in_range(0.01, 2.0);
  options.add("--seed", arguments.seed, "of the arrivals");
  options.add("--io-threads", arguments.io_threads, "of the frontend (its default)");
  options.add("--keep", arguments.keep, "leave configuration and logs in this directory");
  return run_program("hostile", options, arguments.programs, argc, argv,
                     [&] { return Run(arguments).measure(); });
}
