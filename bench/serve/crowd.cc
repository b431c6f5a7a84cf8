// bench_serve_crowd: thousands of idle and slow HTTP connections beside a thousand active ones,
// which may not notice. bench/serve/README.md says what it prints.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

#include "bench/serve/crowd_clients.h"
#include "bench/serve/support/program.h"
#include "bench/serve/support/site.h"
#include "bench/serve/support/verdicts.h"
#include "bench/support/options.h"

namespace {

using namespace gpulet;
using namespace gpulet::bench;
namespace asio = net::asio;

struct Arguments {
  std::uint32_t active = 1000;
  std::uint32_t idle = 10000;
  std::uint32_t slow = 100;  // of each kind
  double seconds = 20;       // of each phase
  std::string programs;
};

double percentile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(fraction * static_cast<double>(values.size() - 1))];
}

void allow_descriptors(std::uint32_t wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < wanted) {
    throw std::runtime_error("needs " + std::to_string(wanted) + " descriptors; ulimit -n gives " +
                             std::to_string(limit.rlim_max));
  }
  limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, wanted);
  ::setrlimit(RLIMIT_NOFILE, &limit);  // the daemons inherit it
}

class Crowd {
 public:
  explicit Crowd(const Arguments& arguments) : arguments_(arguments) {
    allow_descriptors(arguments.idle + arguments.active + 2 * arguments.slow + 500);
    options_.models = {{.name = "small",
                        .fixed_ms = 1,
                        .item_ms = 0.2,
                        .slo_ms = 100,
                        .rate = static_cast<double>(arguments.active)}};
    options_.http = true;
    options_.max_connections = 60000;
    options_.first_message_s = 3600;  // the idle ones say nothing
    options_.programs = arguments.programs;
  }

  int run() {
    Site site(options_);
    site.start_backends();
    site.wait_until_serving();
    target_ = {site.http_port(), infer_request(options_.models.front())};
    open_active();
    phase(std::min(3.0, arguments_.seconds), warming_);
    phase(arguments_.seconds, alone_);
    open_crowd();
    phase(1, warming_);
    phase(arguments_.seconds, crowded_);
    print("warming up", warming_);
    print("alone", alone_);
    print("in the crowd", crowded_);
    return judge();
  }

 private:
  void open_active() {
    for (std::uint32_t i = 0; i < arguments_.active; ++i) {
      active_.push_back(std::make_unique<ActiveClient>(io_, target_, books_));
      active_.back()->start(std::chrono::nanoseconds(1'000'000'000LL * i / arguments_.active));
    }
  }

  void open_crowd() {
    for (std::uint32_t i = 0; i < arguments_.idle; ++i) {
      idle_.push_back(connect_to(io_, target_.port));
      if (i % 8 == 0) io_.poll();  // the active ones go on
    }
    for (std::uint32_t i = 0; i < arguments_.slow; ++i) {
      for (const auto kind : {SlowClient::Kind::writer, SlowClient::Kind::reader}) {
        slow_.push_back(std::make_unique<SlowClient>(io_, target_, kind));
        slow_.back()->start();
      }
    }
  }

  void phase(double seconds, ActiveClient::Books& books) {
    books_ = &books;
    io_.run_for(std::chrono::nanoseconds(from_seconds(seconds)));
  }

  static void print(const char* when, const ActiveClient::Books& books) {
    std::printf("%-13s %8llu sent %8llu answered %6llu failed   p50 %6.2f ms  p99 %6.2f ms\n", when,
                static_cast<unsigned long long>(books.sent),
                static_cast<unsigned long long>(books.answered),
                static_cast<unsigned long long>(books.failed), percentile(books.latencies_ms, 0.5),
                percentile(books.latencies_ms, 0.99));
    if (books.failed > 0) std::printf("first failure: %s\n", books.first_failure.c_str());
  }

  [[nodiscard]] int judge() const {
    Verdicts verdicts;
    const std::uint64_t failed = alone_.failed + crowded_.failed;
    verdicts.hold(failed == 0, text("%llu of the active ones' requests failed (0)",
                                    static_cast<unsigned long long>(failed)));
    const double before = percentile(alone_.latencies_ms, 0.99);
    const double beside = percentile(crowded_.latencies_ms, 0.99);
    verdicts.hold(
        beside <= 1.25 * before + 1,
        text("p99 beside %u idle and %u slow connections %.2f ms, alone %.2f ms (at most a "
             "quarter and 1 ms more)",
             arguments_.idle, 2 * arguments_.slow, beside, before));
    return verdicts.exit_code();
  }

  const Arguments& arguments_;
  SiteOptions options_;
  CrowdTarget target_;
  ActiveClient::Books warming_;
  ActiveClient::Books alone_;
  ActiveClient::Books crowded_;
  ActiveClient::Books* books_ = &warming_;
  asio::io_context io_{1};
  std::vector<std::unique_ptr<ActiveClient>> active_;
  std::vector<asio::ip::tcp::socket> idle_;
  std::vector<std::unique_ptr<SlowClient>> slow_;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  bench::Options options("What idle and slow HTTP connections cost those that are active");
  options.add("--active", arguments.active).positive();
  options.add("--idle", arguments.idle).not_negative();
  options.add("--slow", arguments.slow, "of each kind").not_negative();
  options.add("--seconds", arguments.seconds, "of each phase").in_range(1.0, 3600.0);
  return run_program("crowd", options, arguments.programs, argc, argv,
                     [&] { return Crowd(arguments).run(); });
}
