#include "gpulet/config/control_config.h"

#include <array>

#include "config/control_reading.h"
#include "config/loading.h"

namespace gpulet::config {
namespace {

constexpr double kLongestPeriodSeconds = 3600;
constexpr double kLongestPatienceSeconds = 86400;
constexpr double kMostCores = 4096;
constexpr double kHighestPole = 0.999;
constexpr std::int64_t kLargestSeed = std::int64_t{1} << 53U;

void read_number(const JsonCursor& cursor, std::string_view key, const NumberRange& range,
                 double& number) {
  if (const auto found = cursor.find(key)) number = found->number(range);
}

void read_seconds(const JsonCursor& cursor, std::string_view key, double most, Duration& duration) {
  if (const auto found = cursor.find(key)) {
    duration = from_seconds(found->number({.least = 0, .most = most, .above_least = true}));
  }
}

void read_rules(const JsonCursor& cursor, control::Options& options) {
  constexpr std::array kGpuRules{control::GpuRule::need, control::GpuRule::round_robin};
  constexpr std::array kCoreRules{control::CoreRule::feedback, control::CoreRule::steps,
                                  control::CoreRule::all, control::CoreRule::least};
  if (const auto rule = cursor.find("gpu")) {
    options.gpu = kGpuRules[rule->choice({"need", "round-robin"})];
  }
  if (const auto rule = cursor.find("cores")) {
    options.cores = kCoreRules[rule->choice({"feedback", "steps", "all", "least"})];
  }
  if (const auto spill = cursor.find("spill")) options.spill = spill->truth();
}

}  // namespace

control::Options read_control(const JsonCursor& cursor) {
  constexpr NumberRange kPart{.least = 0, .most = 1, .above_least = true};
  cursor.allow_keys({"gpu", "cores", "set_point", "queued_weight", "surplus", "gpu_cores",
                     "least_cores", "pole", "period_s", "steps_period_s", "percentile",
                     "patience_s", "seed", "spill"});
  control::Options options;
  read_rules(cursor, options);
  read_number(cursor, "set_point", kPart, options.set_point);
  read_number(cursor, "queued_weight", between(0, 1), options.queued_weight);
  read_number(cursor, "surplus", between(0, 1), options.surplus);
  read_number(cursor, "gpu_cores", between(0, kMostCores), options.gpu_cores);
  read_number(cursor, "least_cores", {.least = 0, .most = kMostCores, .above_least = true},
              options.least_cores);
  read_number(cursor, "pole", between(0, kHighestPole), options.pole);
  read_seconds(cursor, "period_s", kLongestPeriodSeconds, options.period);
  read_seconds(cursor, "steps_period_s", kLongestPeriodSeconds, options.steps_period);
  read_seconds(cursor, "patience_s", kLongestPatienceSeconds, options.patience);
  if (const auto percentile = cursor.find("percentile")) {
    options.percentile =
        percentile->number({.least = 0, .most = kHighestPole, .above_least = true});
  }
  if (const auto seed = cursor.find("seed")) {
    options.seed = static_cast<std::uint64_t>(seed->integer(0, kLargestSeed));
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
