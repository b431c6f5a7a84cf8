#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"
#include "gpulet/config/readers.h"
#include "gpulet/profile/interference.h"
#include "profile/interference_models.h"
#include "profile/store_files.h"

namespace gpulet::profile {
namespace {

using config::JsonCursor;
using Json = nlohmann::ordered_json;

constexpr const char* kFitAgain = "fit it again with `gpulet profile import`";
// Far beyond the thresholds, leaves and coefficients of any fit.
constexpr config::NumberRange kNumbers = config::between(-1e9, 1e9);
constexpr config::NumberRange kErrors = config::between(0, 1e9);
constexpr std::int64_t kMostExact = std::int64_t{1}
                                    << 53U;  // whole numbers that JSON stores exactly
constexpr const char* kUtilizationKey = "utilization";
constexpr std::array<std::string_view, 2> kUtilizationNames{"absent", "used"};

// The double with the shortest text that still reads back as this float: half the file's size.
double short_double(float number) {
  constexpr std::size_t kLongest = 32;
  std::array<char, kLongest> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  double value = 0;
  std::from_chars(text.data(), end, value);
  return static_cast<float>(value) == number ? value : static_cast<double>(number);
}

constexpr std::array kLinearKeys{std::pair{"l2_self", &LinearCoefficients::l2_self},
                                 std::pair{"l2_other", &LinearCoefficients::l2_other},
                                 std::pair{"dram_self", &LinearCoefficients::dram_self},
                                 std::pair{"dram_other", &LinearCoefficients::dram_other},
                                 std::pair{"constant", &LinearCoefficients::constant}};

Json linear_json(const LinearCoefficients& linear) {
  Json json;
  for (const auto& [key, coefficient] : kLinearKeys) json[key] = linear.*coefficient;
  return json;
}

LinearCoefficients read_linear(const JsonCursor& cursor) {
  cursor.allow_keys({"l2_self", "l2_other", "dram_self", "dram_other", "constant"});
  LinearCoefficients linear;
  for (const auto& [key, coefficient] : kLinearKeys)
    linear.*coefficient = cursor.required(key).number(kNumbers);
  return linear;
}

Json trees_json(const BoostedTrees& trees) {
  Json list = Json::array();
  const std::size_t leaves = std::size_t{1} << trees.depth();
  for (std::size_t tree = 0; tree < trees.trees(); ++tree) {
    Json features = Json::array();
    Json thresholds = Json::array();
    Json values = Json::array();
    for (std::size_t level = 0; level < trees.depth(); ++level) {
      const BoostedTrees::Question& question = trees.questions()[tree * trees.depth() + level];
      features.push_back(question.feature);
      thresholds.push_back(short_double(question.threshold));
    }
    for (std::size_t leaf = 0; leaf < leaves; ++leaf) {
      values.push_back(short_double(trees.leaves()[tree * leaves + leaf]));
    }
    list.push_back({{"features", features}, {"thresholds", thresholds}, {"leaves", values}});
  }
  return list;
}

Json learned_json(const InterferenceFit& fit) {
  Json learned;
  learned[kUtilizationKey] = kUtilizationNames.at(fit.learned_uses_utilization ? 1 : 0);
  learned["features"] = kFeatureNames;
  learned["depth"] = fit.learned->depth();
  learned["base"] = fit.learned->base();
  learned["trees"] = trees_json(*fit.learned);
  return learned;
}

// Trees refer to features by index, so the file must have the features of this program.
bool same_features(const JsonCursor& features) {
  const std::vector<JsonCursor> names = features.elements("the features' names");
  bool same = names.size() == kFeatureNames.size();
  for (std::size_t i = 0; same && i < names.size(); ++i) {
    same = names[i].text("a feature's name") == kFeatureNames.at(i);
  }
  if (!same) features.fail("the features differ from those that this program computes", kFitAgain);
  return same;
}

FittedTrees read_learned(const JsonCursor& learned) {
  learned.allow_keys({kUtilizationKey, "features", "depth", "base", "trees"});
  const auto depth =
      learned.required("depth").count(1, static_cast<std::uint32_t>(BoostedTrees::kMostDepth));
  const double base = learned.required("base").number(kNumbers);
  if (!same_features(learned.required("features")) || !learned.status().ok()) return {};
  constexpr auto kLastFeature = static_cast<std::uint32_t>(kFeatureNames.size() - 1);
  const std::size_t leaf_count = std::size_t{1} << depth;
  std::vector<BoostedTrees::Question> questions;
  std::vector<float> leaves;
  const JsonCursor list = learned.required("trees");
  for (const JsonCursor& tree : list.elements("a list of trees", 0, BoostedTrees::kMostTrees)) {
    tree.allow_keys({"features", "thresholds", "leaves"});
    const auto features = tree.required("features").elements("a feature per level", depth, depth);
    const auto thresholds =
        tree.required("thresholds").elements("a threshold per level", depth, depth);
    const auto values = tree.required("leaves").elements("two leaves to the power of the depth",
                                                         leaf_count, leaf_count);
    if (!tree.status().ok()) return {};
    for (std::size_t level = 0; level < depth; ++level) {
      questions.push_back({.feature = features[level].count(0, kLastFeature),
                           .threshold = static_cast<float>(thresholds[level].number(kNumbers))});
    }
    for (const JsonCursor& leaf : values) {
      leaves.push_back(static_cast<float>(leaf.number(kNumbers)));
    }
  }
  if (!learned.status().ok()) return {};
  Result<BoostedTrees> trees = BoostedTrees::create(kFeatureNames.size(), depth, base,
                                                    std::move(questions), std::move(leaves));
  if (trees.ok()) return FittedTrees(std::move(trees).value());
  learned.fail(trees.status().message(), kFitAgain);
  return {};
}

Json errors_json(const HeldOutErrors& errors) {
  Json json{{"model", to_string(errors.kind)},
            {"p50", errors.p50},
            {"p90", errors.p90},
            {"p95", errors.p95}};
  json["unseen_model_p90"] = Json::object();
  for (const auto& [model, p90] : errors.unseen_model_p90) json["unseen_model_p90"][model] = p90;
  return json;
}

HeldOutErrors read_errors(const JsonCursor& cursor) {
  cursor.allow_keys({"model", "p50", "p90", "p95", "unseen_model_p90"});
  HeldOutErrors errors;
  std::vector<std::string_view> names;
  for (std::size_t kind = 0; kind <= static_cast<std::size_t>(InterferenceKind::inss); ++kind)
    names.push_back(to_string(static_cast<InterferenceKind>(kind)));
  errors.kind = static_cast<InterferenceKind>(cursor.required("model").choice(names));
  errors.p50 = cursor.required("p50").number(kErrors);
  errors.p90 = cursor.required("p90").number(kErrors);
  errors.p95 = cursor.required("p95").number(kErrors);
  for (const auto& [model, p90] : cursor.required("unseen_model_p90").members()) {
    errors.unseen_model_p90[model] = p90.number(kErrors);
  }
  return errors;
}

}  // namespace

std::string fit_text(const InterferenceFit& fit) {
  Json document;
  document["format"] = kFormat;
  // As text: JSON's numbers do not hold every 64-bit seed.
  document["seed"] = std::to_string(fit.seed);
  document["train_fraction"] = fit.train_fraction;
  document["pairs"] = fit.pairs;
  if (!fit.note.empty()) document["note"] = fit.note;
  document["errors"] = Json::array();
  for (const HeldOutErrors& errors : fit.errors) document["errors"].push_back(errors_json(errors));
  if (fit.linear) document["linear"] = linear_json(*fit.linear);
  if (fit.learned.has_value()) document["learned"] = learned_json(fit);
  return json_line(document) + '\n';
}

Result<InterferenceFit> read_fit(const std::filesystem::path& file) {
  GPULET_TRY(const JsonCursor root, JsonCursor::read_file(file));
  root.allow_keys(
      {"format", "seed", "train_fraction", "pairs", "note", "errors", "linear", "learned"});
  const JsonCursor format = root.required("format");
  if (const std::int64_t version = format.integer(1, 1 << 30); version != kFormat) {
    format.fail(fmt::format("this program reads format {}, not {}", kFormat, version), kFitAgain);
  }
  InterferenceFit fit;
  const JsonCursor seed = root.required("seed");
  const std::string digits = seed.text("a seed's digits");
  if (const auto number = parse_number<std::uint64_t>(digits)) {
    fit.seed = *number;
  } else {
    seed.fail(fmt::format("\"{}\" is not a seed", digits),
              "write a whole number of at most 64 bits");
  }
  fit.train_fraction = root.required("train_fraction").number(config::between(0, 1));
  fit.pairs = static_cast<std::size_t>(root.required("pairs").integer(0, kMostExact));
  if (const auto note = root.find("note")) fit.note = note->text("a text");
  for (const JsonCursor& errors : root.required("errors").elements("the models' errors")) {
    fit.errors.push_back(read_errors(errors));
  }
  if (const auto linear = root.find("linear")) fit.linear = read_linear(*linear);
  if (const auto learned = root.find("learned")) {
    fit.learned_uses_utilization =
        learned->required(kUtilizationKey)
            .choice({kUtilizationNames.begin(), kUtilizationNames.end()}) == 1;
    fit.learned = read_learned(*learned);
  }
  if (Status status = root.status(); !status.ok()) return status;
  return fit;
}

}  // namespace gpulet::profile
