#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "config/description.h"
#include "config/file_readers.h"
#include "config/reading.h"
#include "gpulet/core/tensor.h"

namespace gpulet::config {
namespace {

// Why a step does not accept its inputs.
struct ShapeError {
  std::optional<std::size_t> input;  // index of the wrong input; empty: wrong number of inputs
  std::string what;
  std::string fix;
};

struct ParsedNode {
  ApplicationNode node;  // without its inputs and outputs
  JsonCursor place;
  std::vector<JsonCursor> edges;
};
struct ParsedOutput {
  std::string name;
  JsonCursor from;
};

using Specs = std::vector<TensorSpec>;
using StepOutputs = std::variant<Specs, ShapeError>;

// A step computes its output in one piece, which limits it to small tensors.
constexpr std::size_t kMostOutputBytes = 1U << 30U;

bool is_fixed(const TensorSpec& tensor) {
  return std::count(tensor.shape.begin(), tensor.shape.end(), kAnyDimension) == 0;
}

std::string shown(const TensorSpec& tensor) {
  std::string text(to_string(tensor.type));
  text += '[';
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (i > 0) text += ',';
    text += tensor.shape[i] == kAnyDimension ? "any" : std::to_string(tensor.shape[i]);
  }
  return text + ']';
}

ShapeError wrong_number(const std::string& takes, std::size_t given) {
  return {std::nullopt, fmt::format("the step takes {}; {} are given", takes, given),
          "write one edge for each"};
}

ShapeError wrong_input(std::size_t input, const TensorSpec& given, const std::string& takes) {
  return {input, shown(given) + " does not fit here", "connect " + takes};
}

StepOutputs outputs(const SelectStep& step, const Specs& inputs) {
  if (inputs.size() != 2) return wrong_number("the rows and their scores", inputs.size());
  const TensorSpec& rows = inputs[0];
  const TensorSpec& scores = inputs[1];
  if (rows.shape.empty() || !is_fixed(rows)) return wrong_input(0, rows, "rows of a fixed shape");
  const bool per_class = scores.shape.size() == 2;
  if (scores.type != DataType::fp32 || scores.shape.empty() || scores.shape.size() > 2 ||
      !is_fixed(scores) || scores.shape[0] != rows.shape[0]) {
    return wrong_input(
        1, scores,
        fmt::format("scores FP32[{0}] or FP32[{0},classes], one per row,", rows.shape[0]));
  }
  const std::int64_t classes = per_class ? scores.shape[1] : 0;
  for (const std::uint32_t one : step.classes) {
    if (one >= classes) {
      return ShapeError{1, fmt::format("there is no class {} in {}", one, shown(scores)),
                        "remove it from the classes"};
    }
  }
  if (step.count > rows.shape[0]) {
    return ShapeError{0, fmt::format("{} rows cannot be selected from {}", step.count, shown(rows)),
                      "write a smaller count"};
  }
  TensorSpec chosen = rows;
  chosen.name = "rows";
  chosen.shape[0] = step.count;
  return Specs{
      chosen, {"scores", DataType::fp32, {step.count}}, {"classes", DataType::int64, {step.count}}};
}

StepOutputs outputs(const CropStep&, const Specs& inputs) {
  if (inputs.size() != 2) return wrong_number("an image and a box", inputs.size());
  if (inputs[0].shape.size() != 3)
    return wrong_input(0, inputs[0], "an image [channels,height,width]");
  if (inputs[1].type != DataType::fp32 || inputs[1].shape != std::vector<std::int64_t>{4})
    return wrong_input(1, inputs[1], "a box FP32[4]: top, left, bottom, right");
  return Specs{{"image", inputs[0].type, {inputs[0].shape[0], kAnyDimension, kAnyDimension}}};
}

StepOutputs outputs(const ResizeStep& step, const Specs& inputs) {
  if (inputs.size() != 1) return wrong_number("one image", inputs.size());
  if (inputs[0].type != DataType::fp32 || inputs[0].shape.size() != 3)
    return wrong_input(0, inputs[0], "an image FP32[channels,height,width]");
  return Specs{{"image", DataType::fp32, {inputs[0].shape[0], step.height, step.width}}};
}

StepOutputs outputs(const ArgMaxStep&, const Specs& inputs) {
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].type != DataType::fp32 || inputs[i].shape.empty() || !is_fixed(inputs[i]))
      return wrong_input(i, inputs[i], "numbers FP32[...,n] of a fixed shape");
    std::int64_t own = 1;
    for (std::size_t d = 0; d + 1 < inputs[i].shape.size(); ++d) own *= inputs[i].shape[d];
    if (own > static_cast<std::int64_t>(kMostOutputBytes))
      return wrong_input(i, inputs[i], "fewer rows");
    rows += own;
  }
  return Specs{{"index", DataType::int64, {rows}}};
}

StepOutputs outputs_of(const Step& step, const Specs& inputs) {
  StepOutputs result =
      std::visit([&inputs](const auto& one) { return outputs(one, inputs); }, step);
  if (const auto* specs = std::get_if<Specs>(&result)) {
    for (const TensorSpec& spec : *specs) {
      if (!is_fixed(spec)) continue;
      const Result<std::size_t> bytes = byte_size(spec);
      if (bytes.ok() && bytes.value() <= kMostOutputBytes) continue;
      return ShapeError{std::nullopt,
                        fmt::format("the step's output would be {}, more than 1 GiB", shown(spec)),
                        "connect smaller tensors"};
    }
  }
  return result;
}

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
  const auto item = parse_number<std::uint32_t>(
      std::string_view(tensor).substr(bracket + 1, tensor.size() - bracket - 2));
  if (!item) return std::nullopt;
  return std::pair(tensor.substr(0, bracket), *item);
}

std::optional<std::size_t> index_of(const std::vector<TensorSpec>& tensors, std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [name](const TensorSpec& one) { return one.name == name; });
  if (found == tensors.end()) return std::nullopt;
  return static_cast<std::size_t>(found - tensors.begin());
}

// Fills nodes, outputs and answered of an application, whose inputs are known. Checks that every
// edge exists, tensors fit, there is no cycle and nothing is unused. After an error the application
// is incomplete.
class GraphBuilder {
 public:
  // REQUIRES: at least one node, and unique names.
  GraphBuilder(ApplicationConfig& application, std::vector<ParsedNode> parsed,
               const std::vector<ModelConfig>& models)
      : application_(application),
        parsed_(std::move(parsed)),
        models_(models),
        used_(parsed_.size(), false),
        input_used_(application.inputs.size(), false) {}

  // `inputs` is the place of the application's inputs.
  void build(const std::vector<ParsedOutput>& outputs, const JsonCursor& inputs) {
    add_nodes();
    if (ok()) add_outputs(outputs);
    if (ok()) require_all_used(inputs);
  }

 private:
  // Adds the nodes in topological order; among nodes that are ready, in the order of the file.
  void add_nodes() {
    std::vector<bool> added(parsed_.size(), false);
    for (std::size_t round = 0; round < parsed_.size(); ++round) {
      const std::size_t next = next_node(added);
      if (!ok()) return;
      if (next == parsed_.size()) return report_cycle(added);
      added[next] = true;
      add(next);
      if (!ok()) return;
    }
  }

  void add_outputs(const std::vector<ParsedOutput>& outputs) {
    for (const ParsedOutput& output : outputs) {
      const auto [source, spec] = resolve(output.from);
      if (!ok()) return;
      TensorSpec answered = spec;
      answered.name = output.name;
      if (std::count(spec.shape.begin(), spec.shape.end(), kAnyDimension) > 0) {
        output.from.fail(shown(spec) + " has no fixed size",
                         "resize it before it becomes an output");
      }
      application_.outputs.push_back(std::move(answered));
      application_.answered.push_back(source);
    }
  }

  void require_all_used(const JsonCursor& inputs) const {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (used_[i]) continue;
      const ParsedNode& parsed = parsed_[order_[i]];
      parsed.place.required("name").fail(
          "no edge begins at node " + in_quotes(parsed.node.name),
          "connect one to another node or to an output of the application, or remove the node");
    }
    const auto elements = inputs.elements("a list of tensors");
    for (std::size_t i = 0; i < input_used_.size(); ++i) {
      if (!input_used_[i])
        elements[i].fail("no edge begins at " + in_quotes("request." + application_.inputs[i].name),
                         "connect it to a node, or remove the input");
    }
  }

  [[nodiscard]] bool ok() const { return parsed_.front().place.status().ok(); }

  [[nodiscard]] std::size_t node_named(std::string_view name) const {
    const auto found = std::find_if(parsed_.begin(), parsed_.end(), [name](const ParsedNode& one) {
      return one.node.name == name;
    });
    return static_cast<std::size_t>(found - parsed_.begin());
  }

  // The parsed node that the edge begins at. Empty: the request, or an error.
  [[nodiscard]] std::optional<std::size_t> origin_of(const JsonCursor& edge) const {
    const std::string text = edge.text(kEdge);
    if (!ok()) return std::nullopt;
    const std::optional<EdgeText> ends = parse_edge(text);
    if (!ends) {
      edge.fail(in_quotes(text) + " is not an edge", "write " + std::string(kEdge));
      return std::nullopt;
    }
    if (ends->node == kRequest) return std::nullopt;
    const std::size_t node = node_named(ends->node);
    if (node < parsed_.size()) return node;
    std::vector<std::string_view> names{kRequest};
    for (const ParsedNode& one : parsed_) names.push_back(one.node.name);
    const std::string_view meant = similar(ends->node, names);
    edge.fail("there is no node " + in_quotes(ends->node),
              fmt::format("write {} (known here: {})",
                          meant.empty() ? "another name" : in_quotes(meant), joined(names)));
    return std::nullopt;
  }

  [[nodiscard]] std::size_t next_node(const std::vector<bool>& added) const {
    for (std::size_t i = 0; i < parsed_.size(); ++i) {
      if (added[i]) continue;
      bool blocked = false;
      for (const JsonCursor& edge : parsed_[i].edges) {
        const std::optional<std::size_t> before = origin_of(edge);
        if (!ok()) return parsed_.size();
        blocked = blocked || (before && !added[*before]);
      }
      if (!blocked) return i;
    }
    return parsed_.size();
  }

  // Every remaining node depends on a remaining node, so walking back along edges finds a cycle.
  void report_cycle(const std::vector<bool>& added) const {
    std::size_t at =
        static_cast<std::size_t>(std::find(added.begin(), added.end(), false) - added.begin());
    std::vector<std::size_t> path;
    while (std::find(path.begin(), path.end(), at) == path.end()) {
      path.push_back(at);
      for (const JsonCursor& edge : parsed_[at].edges) {
        const std::optional<std::size_t> before = origin_of(edge);
        if (!before || added[*before]) continue;
        at = *before;
        break;
      }
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), at));
    std::vector<std::string_view> names;
    for (const std::size_t one : path) names.push_back(parsed_[one].node.name);
    names.push_back(parsed_[at].node.name);
    parsed_[at].place.required("inputs").fail(
        fmt::format("the node depends on itself (each on the next: {})", joined(names)),
        "remove one of these edges");
  }

  // The source of an edge and the tensor that it carries.
  std::pair<TensorSource, TensorSpec> resolve(const JsonCursor& edge) {
    const std::optional<std::size_t> origin = origin_of(edge);
    if (!ok()) return {};
    const EdgeText text = *parse_edge(edge.text(kEdge));
    TensorSource source;
    const std::vector<TensorSpec>* tensors = &application_.inputs;
    if (origin) {
      source.node = static_cast<std::size_t>(std::find(order_.begin(), order_.end(), *origin) -
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
      edge.fail(fmt::format("{} has no tensor {}", in_quotes(text.node), in_quotes(text.tensor)),
                "write one of these: " + joined(names));
      return {};
    }
    source.tensor = *tensor;
    (origin ? used_[*source.node] : input_used_[source.tensor]) = true;
    const TensorSpec& whole = (*tensors)[source.tensor];
    if (whole.type == DataType::bytes) {
      edge.fail(shown(whole) + " cannot be an edge: applications have no BYTES tensors",
                "call the model that takes it from the client");
      return {};
    }
    if (!source.item) return {source, whole};
    if (whole.shape.empty() || whole.shape[0] <= static_cast<std::int64_t>(*source.item)) {
      edge.fail(
          fmt::format("{} has no item {} along a first dimension", shown(whole), *source.item),
          "items count from 0");
      return {};
    }
    return {source, item_of(whole)};
  }

  void add(std::size_t index) {
    ParsedNode& parsed = parsed_[index];
    std::vector<TensorSpec> given;
    for (const JsonCursor& edge : parsed.edges) {
      const auto [source, spec] = resolve(edge);
      if (!ok()) return;
      parsed.node.inputs.push_back(source);
      given.push_back(spec);
    }
    if (const auto* call = std::get_if<ModelCall>(&parsed.node.work)) {
      call_model(parsed, *call, given);
    } else {
      auto result = outputs_of(std::get<Step>(parsed.node.work), given);
      if (const auto* error = std::get_if<ShapeError>(&result)) {
        const JsonCursor& place =
            error->input ? parsed.edges[*error->input] : parsed.place.required("inputs");
        place.fail(error->what, error->fix);
      } else {
        parsed.node.outputs = std::get<std::vector<TensorSpec>>(std::move(result));
      }
    }
    order_.push_back(index);
    application_.nodes.push_back(parsed.node);
  }

  void call_model(ParsedNode& parsed, const ModelCall& call, const std::vector<TensorSpec>& given) {
    const ModelConfig* const model =
        find_model(parsed.place.required("model"), call.model, models_);
    if (model == nullptr) return;
    if (model->dynamic) {
      parsed.place.required("model").fail(
          fmt::format("model {} has dimensions of any size, which applications cannot use",
                      call.model),
          "list it a second time under another name, with fixed shapes");
      return;
    }
    if (has_bytes_tensor(model->inputs) || has_bytes_tensor(model->outputs)) {
      parsed.place.required("model").fail(
          fmt::format("model {} has BYTES tensors, which applications do not have", call.model),
          "serve the model by itself");
      return;
    }
    if (given.size() != model->inputs.size()) {
      parsed.place.required("inputs").fail(
          fmt::format("model {} takes {} tensors; {} are given", call.model, model->inputs.size(),
                      given.size()),
          "write one edge for each");
      return;
    }
    for (std::size_t i = 0; i < given.size(); ++i) {
      const TensorSpec& expected = model->inputs[i];
      if (given[i].type == expected.type && given[i].shape == expected.shape) continue;
      parsed.edges[i].fail(
          shown(given[i]) + " does not fit here",
          fmt::format("model {} takes {} as {}", call.model, shown(expected), expected.name));
      return;
    }
    parsed.node.outputs = model->outputs;
    for (const TensorSpec& input : model->inputs) parsed.node.input_names.push_back(input.name);
  }

  ApplicationConfig& application_;
  std::vector<ParsedNode> parsed_;
  const std::vector<ModelConfig>& models_;
  std::vector<std::size_t> order_;  // indices into parsed_, parallel to application_.nodes
  std::vector<bool> used_;          // parallel to order_
  std::vector<bool> input_used_;
};

constexpr std::size_t kMostNodes = 64;
constexpr std::size_t kMostEdges = 64;  // per node
constexpr std::uint32_t kMostRows = 4096;
constexpr std::uint32_t kLargestSide = 8192;

constexpr std::string_view kNameHelp = "The name of the node, unique in the application.";
constexpr std::string_view kModelHelp =
    "A model of this file, which the node calls. Required in a node that is no step.";
constexpr std::string_view kStepHelp = "In place of a model: a small built-in step.";
constexpr std::string_view kInputsHelp = "What the node takes, in order.";

// The keys of every step, which other code reads.
ObjectReader keys_of_step(const JsonCursor& cursor) {
  ObjectReader keys(cursor);
  keys.required("name", elsewhere(), kNameHelp)
      .optional("step", elsewhere(), kStepHelp)
      .required("inputs", elsewhere(), kInputsHelp);
  return keys;
}

Step read_select(const JsonCursor& cursor) {
  SelectStep step;
  const auto classes = [&step](const JsonCursor& at) {
    for (const JsonCursor& one : at.elements("a list of class numbers", 1))
      step.classes.push_back(one.count(0, kMostRows));
  };
  keys_of_step(cursor)
      .optional("count", count(step.count, 1, kMostRows), "Of `select`: how many rows.")
      .optional("classes", classes, "Of `select`: the classes whose scores count. Default: all.")
      .read();
  return step;
}

Step read_resize(const JsonCursor& cursor) {
  ResizeStep step;
  keys_of_step(cursor)
      .required("height", count(step.height, 1, kLargestSide), "Of `resize`: the new height.")
      .required("width", count(step.width, 1, kLargestSide), "Of `resize`: the new width.")
      .read();
  return step;
}

// A step without keys of its own.
template <typename Plain>
Step read_plain(const JsonCursor& cursor) {
  keys_of_step(cursor).read();
  return Plain{};
}

Step read_step(const JsonCursor& cursor) {
  const std::array readers{read_select, read_plain<CropStep>, read_resize, read_plain<ArgMaxStep>};
  const std::size_t kind = cursor.required("step").choice({"select", "crop", "resize", "argmax"});
  if (Description::of(cursor) != nullptr) {
    for (const auto& read : readers) static_cast<void>(read(cursor));
  }
  return readers[kind](cursor);
}

ModelCall read_call(const JsonCursor& cursor) {
  ModelCall call;
  ObjectReader(cursor)
      .required("name", elsewhere(), kNameHelp)
      .optional("model", name(call.model), kModelHelp)
      .required("inputs", elsewhere(), kInputsHelp)
      .read();
  return call;
}

std::string read_node_name(const JsonCursor& cursor) {
  std::string name = cursor.name();
  if (name.find('.') != std::string::npos || name == "request") {
    cursor.fail(in_quotes(name) + " is not allowed here",
                R"(write a name of letters, digits, '_' and '-', other than "request")");
  }
  return name;
}

ParsedNode read_node(const JsonCursor& cursor) {
  ParsedNode parsed{{}, cursor, {}};
  parsed.node.name = read_node_name(cursor.required("name"));
  const bool calls = cursor.find("model").has_value();
  const bool steps = cursor.find("step").has_value();
  if (calls) parsed.node.work = read_call(cursor);
  // A description has both.
  if (steps && (!calls || Description::of(cursor) != nullptr)) parsed.node.work = read_step(cursor);
  if (!calls && !steps) {
    cursor.allow_keys({"name", "model", "step", "inputs"});
    cursor.fail("the node has neither a model nor a step", R"(write "model" or "step")");
  }
  parsed.edges = cursor.required("inputs").elements(R"(a list of edges like ["request.image"])", 1,
                                                    kMostEdges);
  return parsed;
}

ApplicationConfig read_application(const JsonCursor& cursor,
                                   const std::vector<ModelConfig>& models) {
  ApplicationConfig application;
  std::vector<ParsedNode> nodes;
  std::vector<ParsedOutput> outputs;
  const auto read_nodes = [&](const JsonCursor& list) {
    UniqueNames names("node");
    bool calls_a_model = false;
    for (const JsonCursor& element : list.elements("a list of 1 to 64 nodes", 1, kMostNodes)) {
      nodes.push_back(read_node(element));
      names.add(nodes.back().node.name, element.required("name"));
      calls_a_model = calls_a_model || std::holds_alternative<ModelCall>(nodes.back().node.work);
    }
    if (cursor.status().ok() && !calls_a_model)
      list.fail("no node calls a model", "add one with a \"model\"");
  };
  const auto read_tensor_name = [](const JsonCursor& at) {
    return at.text("the tensor's name in quotes");
  };
  const auto read_output = [&](const JsonCursor& element) {
    ParsedOutput output{{}, element.required("from")};
    ObjectReader(element)
        .required("name", into(output.name, read_tensor_name),
                  "The name of the output for clients.")
        .required("from", elsewhere(kEdge), "Where it comes from.")
        .read();
    return output;
  };
  const auto read_outputs = [&](const JsonCursor& list) {
    constexpr auto kExpected = R"(a list like [{"name":"label","from":"classify.logits"}])";
    outputs = read_named(list.elements(kExpected, 1, kMostEdges), "tensor", read_output);
  };
  ObjectReader(cursor)
      .required("name", name(application.name),
                "The name for clients, unique among models and applications.")
      .required("inputs", into(application.inputs, read_tensors), "Of a request.")
      .required("slo_ms", number(application.slo_ms, above(0)),
                "The objective of the whole application.")
      .optional("rate", number(application.rate, at_least(0)),
                "Requests per second that the first plan expects.")
      .required("nodes", read_nodes,
                "Calls of models and steps, at least one of a model, in any order "
                "(docs/applications.md).")
      .required("outputs", read_outputs, "Of a response.")
      .read();
  if (cursor.status().ok()) {
    GraphBuilder(application, std::move(nodes), models).build(outputs, cursor.required("inputs"));
  }
  return application;
}

}  // namespace

TensorSpec item_of(const TensorSpec& tensor) {
  return {tensor.name, tensor.type, {tensor.shape.begin() + 1, tensor.shape.end()}};
}

ServingConfig read_serving(const JsonCursor& root) {
  ServingConfig serving;
  const auto read = [&serving](const JsonCursor& element) {
    return read_application(element, serving.models);
  };
  ObjectReader(root)
      .required("models", named(serving.models, "model", read_model), "The models to serve.")
      .optional("applications", named_beside(serving.applications, serving.models, read),
                "Graphs of these models that answer one request as a whole. Default: none.")
      .read();
  return serving;
}

Result<ServingConfig> parse_serving(std::string_view text, const std::filesystem::path& file,
                                    std::vector<Status>* errors) {
  return parse_document(text, file, errors, read_serving);
}

Result<ServingConfig> load_serving(const std::filesystem::path& file) {
  return load_file(file, parse_serving);
}

}  // namespace gpulet::config
