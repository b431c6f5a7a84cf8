#include "gpulet/serve/values/application.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <new>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "gpulet/base/text.h"

namespace gpulet::serve {
namespace {

using config::ApplicationConfig;
using config::ApplicationNode;
using config::ModelCall;
using Tensors = std::vector<Tensor>;

const ServedModel* find(const std::vector<ServedModel>& models, const std::string& name) {
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&name](const ServedModel& model) { return model.name == name; });
  return found == models.end() ? nullptr : &*found;
}

// ---- objectives

constexpr std::uint32_t kTypicalBatch = 4;
// A request that just missed a batch takes two rounds.
constexpr double kLeastRounds = 2;

const std::string* model_of(const ApplicationNode& node) {
  const auto* call = std::get_if<ModelCall>(&node.work);
  return call == nullptr ? nullptr : &call->model;
}

// 0 if the table has no such latency.
double need_ms(const profile::LatencyTable& latency, std::uint32_t max_batch) {
  std::set<int> sizes;
  for (const profile::LatencySample& sample : latency.samples()) sizes.insert(sample.share.percent);
  const Share middle{*std::next(sizes.begin(), static_cast<std::ptrdiff_t>(sizes.size() / 2))};
  const std::uint32_t batch = std::min({kTypicalBatch, max_batch, latency.largest_batch(middle)});
  return latency.latency_ms(batch, middle).value_or(0);
}

double least_ms(const profile::LatencyTable& latency) {
  return latency.latency_ms(1, latency.samples().back().share).value_or(0);
}

std::vector<const profile::Profile*> profiles_of(const ApplicationConfig& application,
                                                 const profile::ProfileSet& profiles) {
  std::vector<const profile::Profile*> measured;
  for (const auto& [name, profile] : profiles) {
    const bool all = std::all_of(application.nodes.begin(), application.nodes.end(),
                                 [&profile = profile](const ApplicationNode& node) {
                                   const std::string* model = model_of(node);
                                   return model == nullptr || profile.find(*model) != nullptr;
                                 });
    if (all) measured.push_back(&profile);
  }
  return measured;
}

class ObjectiveSplitter {
 public:
  ObjectiveSplitter(const ApplicationConfig& application, std::vector<double> needs_ms)
      : application_(application), needs_ms_(std::move(needs_ms)) {
    successors_.resize(application.nodes.size());
    for (std::size_t i = 0; i < application.nodes.size(); ++i) {
      for (const config::TensorSource& source : application.nodes[i].inputs) {
        if (source.node) successors_[*source.node].push_back(i);
      }
    }
  }

  [[nodiscard]] std::vector<StageBudget> stages() const {
    const std::size_t count = application_.nodes.size();
    std::vector<double> start(count, 0);
    std::vector<double> end(count, 0);
    for (std::size_t i = 0; i < count; ++i) {  // nodes follow their predecessors
      for (const config::TensorSource& source : application_.nodes[i].inputs) {
        if (source.node) start[i] = std::max(start[i], end[*source.node]);
      }
      end[i] = start[i] + share_of(i, std::max(0.0, application_.slo_ms - start[i]));
    }
    std::vector<StageBudget> stages(count);
    for (std::size_t i = 0; i < count; ++i) {
      double next = application_.slo_ms;  // the slack before its successors is its own
      for (const std::size_t successor : successors_[i]) next = std::min(next, start[successor]);
      stages[i] = {from_ms(start[i]), from_ms(next - start[i])};
    }
    return stages;
  }

 private:
  [[nodiscard]] bool is_step(std::size_t node) const {
    return model_of(application_.nodes[node]) == nullptr;
  }

  // The time of the node, out of the time that is left from its start to the end of the request.
  [[nodiscard]] double share_of(std::size_t node, double left_ms) const {
    const double allowance = to_ms(kStepAllowance);
    // Time per millisecond of need, lowered until the longest path fits.
    double stretch = std::numeric_limits<double>::infinity();
    for (std::size_t round = 0; round <= application_.nodes.size(); ++round) {
      const Path path = longest_from(node, stretch);
      const double steps_ms = static_cast<double>(path.steps) * allowance;
      if (path.need_ms <= 0) {
        return std::min(allowance, left_ms / static_cast<double>(path.steps));
      }
      const double fits = std::max(0.0, left_ms - steps_ms) / path.need_ms;
      if (!(fits < stretch)) break;
      stretch = fits;
    }
    if (is_step(node)) return std::min(allowance, left_ms);
    return std::min(stretch * needs_ms_[node], left_ms);
  }

  struct Path {
    double need_ms = 0;
    std::size_t steps = 0;
  };
  // The longest path from the node if every millisecond of need gets `stretch` milliseconds.
  [[nodiscard]] Path longest_from(std::size_t node, double stretch) const {
    const auto longer = [stretch](const Path& a, const Path& b) {
      if (std::isinf(stretch)) return a.need_ms > b.need_ms;
      const double allowance = to_ms(kStepAllowance);
      return a.need_ms * stretch + static_cast<double>(a.steps) * allowance >
             b.need_ms * stretch + static_cast<double>(b.steps) * allowance;
    };
    std::vector<Path> from(application_.nodes.size());
    for (std::size_t i = application_.nodes.size(); i-- > node;) {
      for (const std::size_t successor : successors_[i]) {
        if (longer(from[successor], from[i])) from[i] = from[successor];
      }
      from[i].need_ms += needs_ms_[i];
      if (is_step(i)) ++from[i].steps;
    }
    return from[node];
  }

  const ApplicationConfig& application_;
  std::vector<double> needs_ms_;  // by node; 0: a step
  std::vector<std::vector<std::size_t>> successors_;
};

// The first node whose budget is too small for one request on a whole device; empty: none.
std::string first_unmet(const ApplicationConfig& application,
                        const std::vector<StageBudget>& stages,
                        const std::vector<const profile::Profile*>& profiles) {
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const std::string* model = model_of(application.nodes[i]);
    if (model == nullptr) continue;
    double least = std::numeric_limits<double>::infinity();
    for (const profile::Profile* profile : profiles)
      least = std::min(least, kLeastRounds * least_ms(profile->find(*model)->latency));
    const double budget = to_ms(stages[i].budget);
    if (least <= budget) continue;
    return fmt::format(
        "node {} (model {}) gets {} of the {} ms and needs {}; increase the application's slo_ms",
        application.nodes[i].name, *model, std::lround(budget), std::lround(application.slo_ms),
        std::lround(std::ceil(least)));
  }
  return {};
}

// ---- graphs

bool fits(const TensorSpec& a, const TensorSpec& b) {
  return a.type == b.type && a.shape == b.shape;
}

TensorSpec at(const ApplicationConfig& graph, const config::TensorSource& source) {
  const TensorSpec& whole =
      source.node ? graph.nodes[*source.node].outputs[source.tensor] : graph.inputs[source.tensor];
  return source.item ? config::item_of(whole) : whole;
}

bool fits(const ApplicationConfig& graph, const ApplicationNode& node, const ServedModel& model) {
  if (node.inputs.size() != model.inputs.size() || node.outputs.size() != model.outputs.size())
    return false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!fits(at(graph, node.inputs[i]), model.inputs[i])) return false;
  }
  return std::equal(node.outputs.begin(), node.outputs.end(), model.outputs.begin(),
                    [](const TensorSpec& a, const TensorSpec& b) { return fits(a, b); });
}

// The configuration checked the models of the file, but administrators may unload or replace them.
std::string why_unusable(const ApplicationConfig& graph, const std::vector<ServedModel>& models) {
  for (const ApplicationNode& node : graph.nodes) {
    const auto* call = std::get_if<config::ModelCall>(&node.work);
    if (call == nullptr) continue;
    const ServedModel* const model = find(models, call->model);
    if (model == nullptr) return "model " + call->model + " is not served";
    if (!fits(graph, node, *model)) {
      return fmt::format("model {} has other tensors than node {} expects", call->model, node.name);
    }
  }
  return {};
}

// ---- steps

// Tensors may begin anywhere in a payload, so their numbers may be unaligned.
float float_at(const std::byte* numbers, std::size_t index) {
  float value = 0;
  std::memcpy(&value, numbers + index * sizeof(float), sizeof(float));
  return value;
}

template <typename Number>
Bytes bytes_of(const std::vector<Number>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(Number));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return Bytes::own(std::move(bytes));
}

// The first index of the largest number; NaN counts as the smallest. Empty `candidates` means all.
std::size_t best_of(const std::byte* numbers, std::size_t count,
                    std::span<const std::uint32_t> candidates) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  std::size_t best = candidates.empty() ? 0 : candidates[0];
  float highest = kLeast;
  const std::size_t number = candidates.empty() ? count : candidates.size();
  for (std::size_t i = 0; i < number; ++i) {
    const std::size_t at = candidates.empty() ? i : candidates[i];
    const float value = float_at(numbers, at);
    if (!(value > highest)) continue;
    highest = value;
    best = at;
  }
  return best;
}

Tensors run(const config::SelectStep& step, const Tensors& inputs) {
  const Tensor& rows = inputs[0];
  const Tensor& scores = inputs[1];
  const auto count = static_cast<std::size_t>(rows.spec.shape[0]);
  const std::size_t classes =
      scores.spec.shape.size() == 2 ? static_cast<std::size_t>(scores.spec.shape[1]) : 1;
  std::vector<std::pair<float, std::size_t>> best(count);  // score and class of each row
  for (std::size_t row = 0; row < count; ++row) {
    const std::byte* const own = scores.bytes.view().data() + row * classes * sizeof(float);
    const std::size_t at = best_of(own, classes, step.classes);
    const float score = float_at(own, at);
    best[row] = {std::isnan(score) ? -std::numeric_limits<float>::infinity() : score, at};
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::partial_sort(order.begin(), order.begin() + step.count, order.end(),
                    [&best](std::size_t a, std::size_t b) {
                      return best[a].first != best[b].first ? best[a].first > best[b].first : a < b;
                    });
  const std::size_t row_bytes = rows.bytes.size() / count;
  std::vector<std::byte> chosen;
  std::vector<float> chosen_scores;
  std::vector<std::int64_t> chosen_classes;
  for (std::size_t i = 0; i < step.count; ++i) {
    const auto row = rows.bytes.view().subspan(order[i] * row_bytes, row_bytes);
    chosen.insert(chosen.end(), row.begin(), row.end());
    chosen_scores.push_back(best[order[i]].first);
    chosen_classes.push_back(static_cast<std::int64_t>(best[order[i]].second));
  }
  TensorSpec spec = rows.spec;
  spec.name = "rows";
  spec.shape[0] = step.count;
  return {{spec, Bytes::own(std::move(chosen))},
          {{"scores", DataType::fp32, {step.count}}, bytes_of(chosen_scores)},
          {{"classes", DataType::int64, {step.count}}, bytes_of(chosen_classes)}};
}

// The range [first, end) of pixels that the box touches.
std::pair<std::size_t, std::size_t> touched(float from, float to, std::int64_t size) {
  const auto inside = [](float part) { return part > 0 ? std::min(part, 1.0F) : 0.0F; };
  const auto length = static_cast<float>(size);
  const auto first =
      std::min(static_cast<std::int64_t>(std::floor(inside(from) * length)), size - 1);
  const auto end =
      std::clamp(static_cast<std::int64_t>(std::ceil(inside(to) * length)), first + 1, size);
  return {static_cast<std::size_t>(first), static_cast<std::size_t>(end)};
}

Tensors run(const config::CropStep& /*step*/, const Tensors& inputs) {
  const Tensor& image = inputs[0];
  const std::byte* const box = inputs[1].bytes.view().data();
  const std::int64_t channels = image.spec.shape[0];
  const auto height = static_cast<std::size_t>(image.spec.shape[1]);
  const auto width = static_cast<std::size_t>(image.spec.shape[2]);
  const auto [top, bottom] = touched(float_at(box, 0), float_at(box, 2), image.spec.shape[1]);
  const auto [left, right] = touched(float_at(box, 1), float_at(box, 3), image.spec.shape[2]);
  const std::size_t element = byte_size(image.spec.type);
  const std::size_t row_bytes = (right - left) * element;
  std::vector<std::byte> pixels(static_cast<std::size_t>(channels) * (bottom - top) * row_bytes);
  std::byte* to = pixels.data();
  for (std::size_t channel = 0; channel < static_cast<std::size_t>(channels); ++channel) {
    for (std::size_t y = top; y < bottom; ++y, to += row_bytes) {
      const std::size_t at = ((channel * height + y) * width + left) * element;
      std::memcpy(to, image.bytes.view().data() + at, row_bytes);
    }
  }
  return {{{"image",
            image.spec.type,
            {channels, static_cast<std::int64_t>(bottom - top),
             static_cast<std::int64_t>(right - left)}},
           Bytes::own(std::move(pixels))}};
}

// The two source rows or columns that a row or column of the result interpolates.
struct Neighbours {
  std::size_t before = 0;
  std::size_t after = 0;
  float weight_after = 0;
};

std::vector<Neighbours> neighbours(std::size_t from, std::size_t to) {
  std::vector<Neighbours> places(to);
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  for (std::size_t i = 0; i < to; ++i) {
    const float centre = std::max(0.0F, scale * (static_cast<float>(i) + 0.5F) - 0.5F);
    const std::size_t before = std::min(static_cast<std::size_t>(centre), from - 1);
    places[i] = {before, std::min(before + 1, from - 1), centre - static_cast<float>(before)};
  }
  return places;
}

Tensors run(const config::ResizeStep& step, const Tensors& inputs) {
  const Tensor& image = inputs[0];
  const auto channels = static_cast<std::size_t>(image.spec.shape[0]);
  const auto height = static_cast<std::size_t>(image.spec.shape[1]);
  const auto width = static_cast<std::size_t>(image.spec.shape[2]);
  TensorSpec spec{"image", DataType::fp32, {image.spec.shape[0], step.height, step.width}};
  if (height == step.height && width == step.width) return {{std::move(spec), image.bytes}};
  const std::vector<Neighbours> rows = neighbours(height, step.height);
  const std::vector<Neighbours> columns = neighbours(width, step.width);
  std::vector<float> pixels;
  pixels.reserve(channels * step.height * step.width);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (const Neighbours& row : rows) {
      const std::byte* const plane = image.bytes.view().data();
      const std::byte* const above =
          plane + (channel * height + row.before) * width * sizeof(float);
      const std::byte* const below = plane + (channel * height + row.after) * width * sizeof(float);
      for (const Neighbours& column : columns) {
        const float right = column.weight_after;
        const float upper =
            (1 - right) * float_at(above, column.before) + right * float_at(above, column.after);
        const float lower =
            (1 - right) * float_at(below, column.before) + right * float_at(below, column.after);
        pixels.push_back((1 - row.weight_after) * upper + row.weight_after * lower);
      }
    }
  }
  return {{std::move(spec), bytes_of(pixels)}};
}

Tensors run(const config::ArgMaxStep& /*step*/, const Tensors& inputs) {
  std::vector<std::int64_t> indices;
  for (const Tensor& input : inputs) {
    const auto length = static_cast<std::size_t>(input.spec.shape.back());
    const std::span<const std::byte> numbers = input.bytes.view();
    const std::size_t row_bytes = length * sizeof(float);
    for (std::size_t at = 0; at < numbers.size(); at += row_bytes) {
      indices.push_back(static_cast<std::int64_t>(best_of(numbers.data() + at, length, {})));
    }
  }
  const auto count = static_cast<std::int64_t>(indices.size());
  return {{{"index", DataType::int64, {count}}, bytes_of(indices)}};
}

}  // namespace

namespace {

// Why no profile has all models of the application: what that lacks which has most of them.
std::string unmeasured(const ApplicationConfig& application, const profile::ProfileSet& profiles) {
  std::set<std::string> all;
  for (const config::ApplicationNode& node : application.nodes) {
    if (const std::string* const model = model_of(node)) all.insert(*model);
  }
  std::vector<std::string> lacking(all.begin(), all.end());
  std::string of_type;
  for (const auto& [type, profile] : profiles) {
    std::vector<std::string> missing;
    std::copy_if(all.begin(), all.end(), std::back_inserter(missing),
                 [&one = profile](const std::string& model) { return one.find(model) == nullptr; });
    if (!of_type.empty() && missing.size() >= lacking.size()) continue;
    lacking = std::move(missing);
    of_type = type;
  }
  return fmt::format(
      "no profile covers all of its models; {} lacks {}; measure them with gpulet profile run",
      of_type.empty() ? "every device" : of_type, joined(lacking));
}

}  // namespace

ObjectiveSplit split_objective(const ApplicationConfig& application,
                               const std::vector<ServedModel>& models,
                               const profile::ProfileSet& profiles) {
  const std::vector<const profile::Profile*> measured = profiles_of(application, profiles);
  std::vector<double> needs_ms(application.nodes.size(), 0);
  for (std::size_t i = 0; i < needs_ms.size(); ++i) {
    const std::string* model = model_of(application.nodes[i]);
    if (model == nullptr) continue;
    if (measured.empty()) needs_ms[i] = 1;  // unknown: divide equally
    for (const profile::Profile* profile : measured) {
      needs_ms[i] = std::max(
          needs_ms[i], need_ms(profile->find(*model)->latency, find(models, *model)->max_batch));
    }
  }
  ObjectiveSplit split;
  split.stages = ObjectiveSplitter(application, std::move(needs_ms)).stages();
  split.unmet = measured.empty() ? unmeasured(application, profiles)
                                 : first_unmet(application, split.stages, measured);
  return split;
}

Result<std::shared_ptr<const Application>> make_application(config::ApplicationConfig graph,
                                                            const std::vector<ServedModel>& models,
                                                            const profile::ProfileSet& profiles) {
  if (find(models, graph.name) != nullptr) {
    return Status(StatusCode::invalid,
                  "application " + graph.name + ": a model has the same name; rename one of them");
  }
  auto application = std::make_shared<Application>();
  ServedModel front;
  front.name = graph.name;
  front.inputs = graph.inputs;
  front.outputs = graph.outputs;
  front.slo_ms = graph.slo_ms;
  front.configured_rate = graph.rate;
  front.max_batch = 1;
  GPULET_TRY(ServedModel sized, with_sizes(std::move(front)));
  application->front = std::move(sized);
  application->split.unmet = why_unusable(graph, models);
  if (application->split.unmet.empty())
    application->split = split_objective(graph, models, profiles);
  application->split.stages.resize(graph.nodes.size());
  application->readers.resize(graph.nodes.size(), 0);
  const auto count = [&application](const config::TensorSource& source) {
    ++(source.node ? application->readers[*source.node] : application->request_readers);
  };
  for (const config::ApplicationNode& node : graph.nodes) {
    for (const config::TensorSource& source : node.inputs) count(source);
  }
  for (const config::TensorSource& source : graph.answered) count(source);
  application->graph = std::move(graph);
  return std::shared_ptr<const Application>(std::move(application));
}

std::map<std::string, CallsOfModel> calls_of_models(const ApplicationList& applications) {
  std::map<std::string, CallsOfModel> called;
  for (const auto& application : applications) {
    for (std::size_t i = 0; i < application->graph.nodes.size(); ++i) {
      const auto* call = std::get_if<config::ModelCall>(&application->graph.nodes[i].work);
      if (call == nullptr) continue;
      CallsOfModel& calls = called[call->model];
      if (!application->split.unmet.empty()) continue;
      calls.slo_ms = std::min(calls.slo_ms, to_ms(application->split.stages[i].budget));
      calls.rate += application->graph.rate;
    }
  }
  return called;
}

ServedModel planned_model(ServedModel model, const CallsOfModel& calls) {
  model.slo_ms = std::min(model.slo_ms, calls.slo_ms);
  model.configured_rate += calls.rate;
  return model;
}

Tensor item(const Tensor& tensor, std::uint32_t index) {
  const std::size_t bytes = tensor.bytes.size() / static_cast<std::size_t>(tensor.spec.shape[0]);
  return {config::item_of(tensor.spec), tensor.bytes.slice(index * bytes, bytes)};
}

Result<Tensors> run_step(const config::Step& step, const Tensors& inputs) {
  try {
    return std::visit([&inputs](const auto& one) { return run(one, inputs); }, step);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::internal, "out of memory for the outputs of a step");
  }
}

}  // namespace gpulet::serve
