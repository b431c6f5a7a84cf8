#include <cstdint>

#include "config/file_readers.h"
#include "config/reading.h"
#include "gpulet/config/daemon_config.h"

namespace gpulet::config {
namespace {

constexpr double kMostCores = 4096;
constexpr double kHighestPole = 0.999;
constexpr double kHighestGain = 1000;  // cores per second
constexpr double kLongestOverheadS = 60;
constexpr std::int64_t kMostRequestsAtOnce = 1024;
constexpr std::int64_t kLargestSeed = std::int64_t{1} << 53U;
constexpr NumberRange kPeriod = up_to(3600);

}  // namespace

// Equations and algorithms are those of ROMA (docs/control.md).
control::Options read_control(const JsonCursor& cursor) {
  control::Options options;
  const auto read_window = [](const JsonCursor& window) {
    return from_seconds(window.number(kPeriod));
  };
  const auto read_gains = [](const JsonCursor& gains) {
    control::PiGains read;
    ObjectReader(gains)
        .required("cores_per_s", number(read.gain_cores_per_s, up_to(kHighestGain)),
                  "K of equation 11. It does not grow with the cores.")
        .required("zero", number(read.zero, between(0, kHighestPole)), "a of equation 11.")
        .read();
    return read;
  };
  const auto read_seed = [](const JsonCursor& seed) {
    return static_cast<std::uint64_t>(seed.integer(0, kLargestSeed));
  };
  ObjectReader(cursor)
      .optional("gpu", choice(options.gpu, {"need", "round-robin"}),
                "The model that gets a free GPU. `need`: the one furthest above its set point "
                "(algorithm 1). `round-robin`: each in turn.")
      .optional("cores", choice(options.cores, {"feedback", "steps", "all", "least"}),
                "How many cores an instance requests. `feedback`: what its controller computes. "
                "`steps`: one more at 0.8 of the objective or above, one less at 0.2 or below. "
                "`all`: an equal part of the node's cores. `least`: an equal part of one core.")
      .optional("set_point", number(options.set_point, up_to(1)),
                "α: the part of the objective to which response times are controlled. With random "
                "arrivals they vary around it, so a lower value means fewer of them beyond the "
                "objective.")
      .optional("queued_weight", number(options.queued_weight, between(0, 1)),
                "β: the weight of queued against completed requests in the need for a GPU.")
      .optional("surplus", number(options.surplus, between(0, 1)),
                "γ: 0 grants the requested cores, 1 always grants all cores.")
      .optional("gpu_cores", number(options.gpu_cores, between(0, kMostCores)),
                "Cores of each node that are reserved for its GPUs.")
      .optional("least_cores", number(options.least_cores, up_to(kMostCores)),
                "The minimum request of an instance.")
      .optional("pole", number(options.pole, between(0, kHighestPole)),
                "The pole of the closed loop for an identified plant. 0 is the fastest; towards 1 "
                "it is slower.")
      .optional("period_s", seconds(options.period, kPeriod), "The control period.")
      .optional("window_s", into(options.window, read_window),
                "w of equation 1: the responses of the last so many seconds count, rounded up to "
                "whole periods. At least `period_s`, which is the default. It also applies to the "
                "need for a GPU.")
      .optional("overhead_s", seconds(options.overhead, between(0, kLongestOverheadS)),
                "The part of a response time that clients see and the frontend does not, such as a "
                "network in front of it. It is added to the measured times, so that the objective "
                "is the clients'.")
      .optional("gains", into(options.gains, read_gains),
                "Fixed gains in place of those that follow from the plant.")
      .optional("steps_period_s", seconds(options.steps_period, kPeriod),
                "The period of the rule `steps`.")
      .optional("percentile", number(options.percentile, up_to(kHighestPole)),
                "Controls this percentile of the response times, such as 0.95. Default: their "
                "mean.")
      .optional("patience_s", seconds(options.patience, kSeconds),
                "The longest wait of a request without a timeout of its own.")
      .optional("seed", into(options.seed, read_seed),
                "The seed of the random choices among CPU instances.")
      .optional("spill", boolean(options.spill),
                "For policies other than `roma`: plans leave CPUs out, and requests that no gpulet "
                "can serve in time go to CPU instances.")
      .optional("requests_at_once", count(options.requests_at_once, 1, kMostRequestsAtOnce),
                "For experiments: the requests that a CPU instance holds at a time. The instances "
                "of `gpulet simulate` run them together, each on an equal part of the cores; "
                "processes run one after the other.")
      .read();
  if (options.window && *options.window < options.period) {
    cursor.fail("has a window_s shorter than period_s", "raise window_s, or leave it out");
  }
  return options;
}

Result<control::Options> parse_control(std::string_view text, const std::filesystem::path& file,
                                       std::vector<Status>* errors) {
  return parse_document(text, file, errors, read_control);
}

Result<control::Options> load_control(const std::filesystem::path& file) {
  return load_file(file, parse_control);
}

}  // namespace gpulet::config
