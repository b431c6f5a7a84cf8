// bench_serve_overload_http: overload over many HTTP connections. Goodput past capacity beside that
// at capacity, in one run, and whether any connection starves. bench/serve/README.md says what is
// held.
#include <algorithm>
#include <cstdio>
#include <map>

#include "bench/serve/http_crowd.h"
#include "bench/serve/support/capacity.h"
#include "bench/serve/support/program.h"
#include "bench/serve/support/site.h"
#include "bench/serve/support/verdicts.h"
#include "bench/support/options.h"

namespace {

using namespace gpulet;
using namespace gpulet::bench;
namespace asio = net::asio;

constexpr double kGoodputKept = 0.95;
constexpr double kStarved = 0.25;  // of the median connection's good answers
constexpr double kSettling_s = 5;  // a plan follows the new rate
constexpr Duration kLastAnswers = std::chrono::seconds(1);

struct Arguments {
  std::uint32_t connections = 512;
  double seconds = 60;
  std::uint64_t seed = 1;
  bool closed = false;
  std::string programs;
};

struct Phase {
  const char* name;
  double times_capacity;
  double seconds;
  Duration from{};
  Duration until{};
};

struct Figures {
  double offered = 0;  // per second
  double goodput = 0;
  std::uint64_t late = 0;
  std::map<std::uint32_t, std::uint64_t> refused;  // by status
  double p50_ms = 0;                               // of those that were served
  double p99_ms = 0;
  std::vector<std::uint64_t> good;  // by connection, ascending
};

class Run {
 public:
  explicit Run(const Arguments& arguments)
      : arguments_(arguments), options_(site_options(arguments)), scale_(capacity_scale(options_)) {
    const double around = std::max(arguments.seconds / 2, 2 * kSettling_s);
    phases_ = {{"warm", 0.5, kSettling_s},
               {"1.0 x", 1.0, around + kSettling_s},
               {"2.0 x", 2.0, arguments.seconds}};
    if (arguments.closed) phases_.back().name = "closed";
  }

  int measure() {
    SiteOptions options = options_;
    options.models.front().rate *= scale_ / 2;
    Site site(options);
    site.start_backends();
    site.wait_until_serving();
    const SiteModel& model = options_.models.front();
    const double capacity = model.rate * scale_;
    const CrowdTarget target{site.http_port(), infer_request(model)};
    HttpCrowd crowd(io_, target, arguments_.connections, arguments_.seed);
    for (Phase& phase : phases_) {
      phase.from = crowd.elapsed();
      if (arguments_.closed && &phase == &phases_.back()) {
        crowd.set_closed();
      } else {
        crowd.set_rate(capacity * phase.times_capacity);
      }
      io_.run_for(std::chrono::nanoseconds(from_seconds(phase.seconds)));
      phase.until = crowd.elapsed();
    }
    crowd.set_rate(0);
    io_.run_for(std::chrono::nanoseconds(kLastAnswers));
    std::printf("%u connections; capacity by the plan %.0f requests/s\n", arguments_.connections,
                capacity);
    print_head();
    for (const Phase& phase : phases_) print(phase.name, figures_of(crowd.answers(), phase, false));
    std::printf("%llu connections were opened anew\n\n",
                static_cast<unsigned long long>(crowd.reconnected()));
    return judge(figures_of(crowd.answers(), phases_[1], true),
                 figures_of(crowd.answers(), phases_[2], false));
  }

 private:
  static SiteOptions site_options(const Arguments& arguments) {
    SiteOptions options;
    options.models = {{.name = "small", .fixed_ms = 3, .item_ms = 1.5, .slo_ms = 80, .rate = 300}};
    options.backends = 2;
    options.http = true;
    options.programs = arguments.programs;
    return options;
  }

  static double capacity_scale(const SiteOptions& options) {
    return Capacity(options).schedulable_scale();
  }

  // Without the first seconds, where `settled`.
  Figures figures_of(const std::vector<CrowdAnswer>& answers, const Phase& phase,
                     bool settled) const {
    const Duration from = phase.from + (settled ? from_seconds(kSettling_s) : Duration());
    const double seconds = to_seconds(phase.until - from);
    Figures figures;
    figures.good.resize(arguments_.connections);
    std::vector<double> latencies;
    std::uint64_t offered = 0;
    std::uint64_t good = 0;
    for (const CrowdAnswer& answer : answers) {
      if (answer.due < from || answer.due >= phase.until) continue;
      ++offered;
      if (answer.status != 200) {
        ++figures.refused[answer.status];
        continue;
      }
      latencies.push_back(to_ms(answer.took));
      if (to_ms(answer.took) > options_.models.front().slo_ms) {
        ++figures.late;
      } else {
        ++good;
        ++figures.good[answer.connection];
      }
    }
    std::sort(latencies.begin(), latencies.end());
    std::sort(figures.good.begin(), figures.good.end());
    if (!latencies.empty()) {
      figures.p50_ms = latencies[(latencies.size() - 1) / 2];
      figures.p99_ms = latencies[(latencies.size() * 99 - 1) / 100];
    }
    figures.offered = static_cast<double>(offered) / seconds;
    figures.goodput = static_cast<double>(good) / seconds;
    return figures;
  }

  static void print_head() {
    std::printf("%-7s %9s %9s %7s %8s %8s   %s\n", "load", "asked/s", "goodput/s", "late", "p50 ms",
                "p99 ms", "good answers of a connection: least, median, most; refused");
  }

  static void print(const char* name, const Figures& of) {
    std::printf("%-7s %9.1f %9.1f %7llu %8.1f %8.1f   %llu, %llu, %llu;", name, of.offered,
                of.goodput, static_cast<unsigned long long>(of.late), of.p50_ms, of.p99_ms,
                static_cast<unsigned long long>(of.good.front()),
                static_cast<unsigned long long>(of.good[of.good.size() / 2]),
                static_cast<unsigned long long>(of.good.back()));
    for (const auto& [status, times] : of.refused)
      std::printf(" %u: %llu", status, static_cast<unsigned long long>(times));
    std::printf("\n");
  }

  [[nodiscard]] static int judge(const Figures& at_capacity, const Figures& over) {
    Verdicts verdicts;
    verdicts.hold(
        over.goodput >= kGoodputKept * at_capacity.goodput,
        text("goodput past capacity %.1f/s, at capacity %.1f/s: %.1f %% (at least 95 %%)",
             over.goodput, at_capacity.goodput, 100 * over.goodput / at_capacity.goodput));
    const double median = static_cast<double>(over.good[over.good.size() / 2]);
    const auto starved = std::count_if(over.good.begin(), over.good.end(), [&](std::uint64_t good) {
      return good == 0 || static_cast<double>(good) < kStarved * median;
    });
    verdicts.hold(starved == 0, text("%lld connections starved: fewer good answers than a quarter "
                                     "of the median's %.0f (0)",
                                     static_cast<long long>(starved), median));
    const auto lost = over.refused.find(0);
    verdicts.hold(
        lost == over.refused.end(),
        text("%llu requests lost with their connection (0)",
             static_cast<unsigned long long>(lost == over.refused.end() ? 0 : lost->second)));
    return verdicts.exit_code();
  }

  const Arguments& arguments_;
  const SiteOptions options_;
  const double scale_;
  std::vector<Phase> phases_;
  asio::io_context io_{1};
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  bench::Options options("Goodput and fairness at twice the capacity, over HTTP");
  options.add("--connections", arguments.connections).in_range(1, 15000);
  options.add("--seconds", arguments.seconds, "at twice the capacity; the rest follows")
      .in_range(5.0, 3600.0);
  options.add("--seed", arguments.seed, "of the arrivals");
  options.add_flag(
      "--closed", arguments.closed,
      "instead of twice the capacity: every connection asks again as soon as it is answered");
  return run_program("overload-http", options, arguments.programs, argc, argv,
                     [&] { return Run(arguments).measure(); });
}
