#include "config/application_graph.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "config/step_shapes.h"
#include "config/wording.h"

namespace gpulet::config {
namespace {

constexpr std::string_view kRequest = "request";
constexpr std::string_view kEdge =
    "an edge \"<node>.<tensor>\" or \"request.<input>\", with \"[i]\" for one item";

struct EdgeText {
  std::string node;
  std::string tensor;
};

std::optional<EdgeText> parse_edge(const std::string& text) {
  const std::size_t dot = text.find('.');
  if (dot == std::string::npos || dot == 0 || dot + 1 == text.size()) return std::nullopt;
  return EdgeText{text.substr(0, dot), text.substr(dot + 1)};
}

// "rows[2]" to "rows" and 2.
std::optional<std::pair<std::string, std::uint32_t>> parse_item(const std::string& tensor) {
  const std::size_t bracket = tensor.rfind('[');
  if (bracket == std::string::npos || bracket == 0 || tensor.back() != ']') return std::nullopt;
  const char* const first = tensor.data() + bracket + 1;
  const char* const last = tensor.data() + tensor.size() - 1;
  std::uint32_t item = 0;
  const auto [stopped, error] = std::from_chars(first, last, item);
  if (error != std::errc() || stopped != last) return std::nullopt;
  return std::pair(tensor.substr(0, bracket), item);
}

std::optional<std::size_t> index_of(const std::vector<TensorSpec>& tensors, std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [name](const TensorSpec& one) { return one.name == name; });
  if (found == tensors.end()) return std::nullopt;
  return static_cast<std::size_t>(found - tensors.begin());
}

class Graph {
 public:
  Graph(ApplicationConfig& application, std::vector<DraftNode> drafts,
        const std::vector<ModelConfig>& models)
      : application_(application),
        drafts_(std::move(drafts)),
        models_(models),
        used_(drafts_.size(), false),
        input_used_(application.inputs.size(), false) {}

  // Nodes that wait for nobody first; of several the one that stands first.
  void add_nodes() {
    std::vector<bool> added(drafts_.size(), false);
    for (std::size_t round = 0; round < drafts_.size(); ++round) {
      const std::size_t next = next_node(added);
      if (!ok()) return;
      if (next == drafts_.size()) return report_cycle(added);
      added[next] = true;
      add(next);
      if (!ok()) return;
    }
  }

  void add_outputs(const std::vector<DraftOutput>& outputs) {
    for (const DraftOutput& output : outputs) {
      const auto [source, spec] = resolve(output.from);
      if (!ok()) return;
      TensorSpec answered = spec;
      answered.name = output.name;
      if (std::count(spec.shape.begin(), spec.shape.end(), kAnyDimension) > 0) {
        output.from.fail(shown(spec) + " has no fixed size", "resize it before it is answered");
      }
      application_.outputs.push_back(std::move(answered));
      application_.answered.push_back(source);
    }
  }

  void require_all_used(const JsonCursor& inputs) const {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (used_[i]) continue;
      const DraftNode& draft = drafts_[order_[i]];
      draft.place.required("name").fail(
          "nothing takes a tensor of node " + in_quotes(draft.node.name),
          "lead one to an output of the application, or take the node out");
    }
    const auto elements = inputs.elements("a list of tensors");
    for (std::size_t i = 0; i < input_used_.size(); ++i) {
      if (!input_used_[i])
        elements[i].fail("no edge begins at " + in_quotes("request." + application_.inputs[i].name),
                         "lead it to a node, or take it out");
    }
  }

 private:
  [[nodiscard]] bool ok() const { return drafts_.front().place.status().ok(); }

  [[nodiscard]] std::size_t draft_named(std::string_view name) const {
    const auto found = std::find_if(drafts_.begin(), drafts_.end(), [name](const DraftNode& draft) {
      return draft.node.name == name;
    });
    return static_cast<std::size_t>(found - drafts_.begin());
  }

  // The draft that the edge begins at; empty: the request, or an error.
  [[nodiscard]] std::optional<std::size_t> draft_before(const JsonCursor& edge) const {
    const std::string text = edge.text(kEdge);
    if (!ok()) return std::nullopt;
    const std::optional<EdgeText> parsed = parse_edge(text);
    if (!parsed) {
      edge.fail(in_quotes(text) + " is no edge", "write " + std::string(kEdge));
      return std::nullopt;
    }
    if (parsed->node == kRequest) return std::nullopt;
    const std::size_t draft = draft_named(parsed->node);
    if (draft < drafts_.size()) return draft;
    std::vector<std::string_view> names{kRequest};
    for (const DraftNode& one : drafts_) names.push_back(one.node.name);
    edge.fail("there is no node " + in_quotes(parsed->node),
              "write " + in_quotes(nearest(parsed->node, names)) +
                  " (known here: " + joined(names) + ")");
    return std::nullopt;
  }

  [[nodiscard]] std::size_t next_node(const std::vector<bool>& added) const {
    for (std::size_t i = 0; i < drafts_.size(); ++i) {
      if (added[i]) continue;
      bool waits = false;
      for (const JsonCursor& edge : drafts_[i].edges) {
        const std::optional<std::size_t> before = draft_before(edge);
        if (!ok()) return drafts_.size();
        waits = waits || (before && !added[*before]);
      }
      if (!waits) return i;
    }
    return drafts_.size();
  }

  // Every node that is left waits for one that is left: going back far enough ends in a cycle.
  void report_cycle(const std::vector<bool>& added) const {
    std::size_t at =
        static_cast<std::size_t>(std::find(added.begin(), added.end(), false) - added.begin());
    std::vector<std::size_t> way;
    while (std::find(way.begin(), way.end(), at) == way.end()) {
      way.push_back(at);
      for (const JsonCursor& edge : drafts_[at].edges) {
        const std::optional<std::size_t> before = draft_before(edge);
        if (!before || added[*before]) continue;
        at = *before;
        break;
      }
    }
    way.erase(way.begin(), std::find(way.begin(), way.end(), at));
    std::vector<std::string_view> names;
    for (const std::size_t one : way) names.push_back(drafts_[one].node.name);
    names.push_back(drafts_[at].node.name);
    drafts_[at].place.required("inputs").fail(
        "the node waits for itself (each for the next: " + joined(names) + ")",
        "take out one of these edges");
  }

  // Where the edge begins and what it carries.
  std::pair<TensorSource, TensorSpec> resolve(const JsonCursor& edge) {
    const std::optional<std::size_t> draft = draft_before(edge);
    if (!ok()) return {};
    const EdgeText text = *parse_edge(edge.text(kEdge));
    TensorSource source;
    const std::vector<TensorSpec>* tensors = &application_.inputs;
    if (draft) {
      source.node = static_cast<std::size_t>(std::find(order_.begin(), order_.end(), *draft) -
                                             order_.begin());
      tensors = &application_.nodes[*source.node].outputs;
    }
    std::optional<std::size_t> tensor = index_of(*tensors, text.tensor);
    if (const auto item = parse_item(text.tensor); !tensor && item) {
      tensor = index_of(*tensors, item->first);
      source.item = item->second;
    }
    if (!tensor) {
      std::vector<std::string_view> names;
      for (const TensorSpec& one : *tensors) names.push_back(one.name);
      edge.fail(in_quotes(text.node) + " has no tensor " + in_quotes(text.tensor),
                "write one of these: " + joined(names));
      return {};
    }
    source.tensor = *tensor;
    (draft ? used_[*source.node] : input_used_[source.tensor]) = true;
    const TensorSpec& whole = (*tensors)[source.tensor];
    if (!source.item) return {source, whole};
    if (whole.shape.empty() || whole.shape[0] <= static_cast<std::int64_t>(*source.item)) {
      edge.fail(shown(whole) + " has no item " + std::to_string(*source.item) +
                    " along a first dimension",
                "items count from 0");
      return {};
    }
    return {source, item_of(whole)};
  }

  void add(std::size_t index) {
    DraftNode& draft = drafts_[index];
    std::vector<TensorSpec> given;
    for (const JsonCursor& edge : draft.edges) {
      const auto [source, spec] = resolve(edge);
      if (!ok()) return;
      draft.node.inputs.push_back(source);
      given.push_back(spec);
    }
    if (const auto* call = std::get_if<ModelCall>(&draft.node.work)) {
      call_model(draft, *call, given);
    } else {
      auto outcome = outputs_of(std::get<Step>(draft.node.work), given);
      if (const auto* misfit = std::get_if<Misfit>(&outcome)) {
        const JsonCursor& place =
            misfit->input ? draft.edges[*misfit->input] : draft.place.required("inputs");
        place.fail(misfit->what, misfit->mend);
      } else {
        draft.node.outputs = std::get<std::vector<TensorSpec>>(std::move(outcome));
      }
    }
    order_.push_back(index);
    application_.nodes.push_back(draft.node);
  }

  void call_model(DraftNode& draft, const ModelCall& call, const std::vector<TensorSpec>& given) {
    const auto model = std::find_if(models_.begin(), models_.end(),
                                    [&](const ModelConfig& one) { return one.name == call.model; });
    if (model == models_.end()) {
      std::vector<std::string_view> names;
      for (const ModelConfig& one : models_) names.push_back(one.name);
      draft.place.required("model").fail(
          "there is no model " + in_quotes(call.model),
          "write " + in_quotes(nearest(call.model, names)) + ", or add it to the models");
      return;
    }
    if (given.size() != model->inputs.size()) {
      draft.place.required("inputs").fail("model " + call.model + " takes " +
                                              std::to_string(model->inputs.size()) + " tensors; " +
                                              std::to_string(given.size()) + " are given",
                                          "write one edge for each");
      return;
    }
    for (std::size_t i = 0; i < given.size(); ++i) {
      const TensorSpec& wanted = model->inputs[i];
      if (given[i].type == wanted.type && given[i].shape == wanted.shape) continue;
      draft.edges[i].fail(shown(given[i]) + " does not fit here",
                          "model " + call.model + " takes " + shown(wanted) + " as " + wanted.name);
      return;
    }
    draft.node.outputs = model->outputs;
    for (const TensorSpec& input : model->inputs) draft.node.input_names.push_back(input.name);
  }

  ApplicationConfig& application_;
  std::vector<DraftNode> drafts_;
  const std::vector<ModelConfig>& models_;
  std::vector<std::size_t> order_;  // the drafts that are added, beside application_.nodes
  std::vector<bool> used_;          // beside order_
  std::vector<bool> input_used_;
};

}  // namespace

TensorSpec item_of(const TensorSpec& tensor) {
  return {tensor.name, tensor.type, {tensor.shape.begin() + 1, tensor.shape.end()}};
}

void join_graph(ApplicationConfig& application, std::vector<DraftNode> drafts,
                const std::vector<DraftOutput>& outputs, const std::vector<ModelConfig>& models,
                const JsonCursor& inputs) {
  Graph graph(application, std::move(drafts), models);
  graph.add_nodes();
  if (!inputs.status().ok()) return;
  graph.add_outputs(outputs);
  if (!inputs.status().ok()) return;
  graph.require_all_used(inputs);
}

}  // namespace gpulet::config
