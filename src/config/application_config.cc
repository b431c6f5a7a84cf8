#include "gpulet/config/application_config.h"

#include <algorithm>
#include <utility>

#include "config/application_graph.h"
#include "config/loading.h"
#include "config/model_reading.h"
#include "config/wording.h"

namespace gpulet::config {
namespace {

constexpr std::size_t kMostNodes = 64;
constexpr std::size_t kMostEdges = 64;  // into one node
constexpr std::uint32_t kMostRows = 4096;
constexpr std::uint32_t kLargestSide = 8192;

Step read_step(const JsonCursor& cursor) {
  static const std::vector<std::string_view> names = {"select", "crop", "resize", "argmax"};
  switch (cursor.required("step").choice(names)) {
    case 0: {
      cursor.allow_keys({"name", "step", "inputs", "count", "classes"});
      SelectStep step;
      if (const auto count = cursor.find("count")) step.count = count->count(1, kMostRows);
      if (const auto classes = cursor.find("classes")) {
        for (const JsonCursor& one : classes->elements("a list of class numbers", 1))
          step.classes.push_back(one.count(0, kMostRows));
      }
      return step;
    }
    case 1:
      cursor.allow_keys({"name", "step", "inputs"});
      return CropStep{};
    case 2:
      cursor.allow_keys({"name", "step", "inputs", "height", "width"});
      return ResizeStep{cursor.required("height").count(1, kLargestSide),
                        cursor.required("width").count(1, kLargestSide)};
    default:
      cursor.allow_keys({"name", "step", "inputs"});
      return ArgMaxStep{};
  }
}

std::string read_node_name(const JsonCursor& cursor) {
  std::string name = cursor.name();
  if (name.find('.') != std::string::npos || name == "request") {
    cursor.fail(in_quotes(name) + " is not allowed here",
                R"(write a name of letters, digits, '_' and '-', other than "request")");
  }
  return name;
}

DraftNode read_node(const JsonCursor& cursor) {
  DraftNode draft{{}, cursor, {}};
  draft.node.name = read_node_name(cursor.required("name"));
  if (cursor.find("model")) {
    cursor.allow_keys({"name", "model", "inputs"});
    draft.node.work = ModelCall{cursor.required("model").name()};
  } else if (cursor.find("step")) {
    draft.node.work = read_step(cursor);
  } else {
    cursor.allow_keys({"name", "model", "step", "inputs"});
    cursor.fail("the node has neither a model nor a step", R"(write "model" or "step")");
  }
  draft.edges = cursor.required("inputs").elements(R"(a list of edges like ["request.image"])", 1,
                                                   kMostEdges);
  return draft;
}

ApplicationConfig read_application(const JsonCursor& cursor,
                                   const std::vector<ModelConfig>& models) {
  cursor.allow_keys({"name", "inputs", "outputs", "slo_ms", "rate", "nodes"});
  ApplicationConfig application;
  application.name = cursor.required("name").name();
  const JsonCursor inputs = cursor.required("inputs");
  application.inputs = read_tensors(inputs, 1);
  application.slo_ms = cursor.required("slo_ms").number(above(0));
  if (const auto rate = cursor.find("rate")) application.rate = rate->number(at_least(0));

  std::vector<DraftNode> drafts;
  UniqueNames names("node");
  bool calls_a_model = false;
  for (const JsonCursor& element :
       cursor.required("nodes").elements("a list of 1 to 64 nodes", 1, kMostNodes)) {
    drafts.push_back(read_node(element));
    names.add(drafts.back().node.name, element.required("name"));
    calls_a_model = calls_a_model || std::holds_alternative<ModelCall>(drafts.back().node.work);
  }
  if (cursor.status().ok() && !calls_a_model)
    cursor.required("nodes").fail("no node calls a model", "add one with a \"model\"");

  std::vector<DraftOutput> outputs;
  UniqueNames output_names("tensor");
  for (const JsonCursor& element : cursor.required("outputs").elements(
           R"(a list like [{"name":"label","from":"classify.logits"}])", 1, kMostEdges)) {
    element.allow_keys({"name", "from"});
    outputs.push_back(
        {element.required("name").text("the tensor's name in quotes"), element.required("from")});
    output_names.add(outputs.back().name, element.required("name"));
  }
  if (cursor.status().ok()) join_graph(application, std::move(drafts), outputs, models, inputs);
  return application;
}

}  // namespace

Result<ServingConfig> parse_serving(std::string_view text, const std::filesystem::path& file,
                                    std::vector<Status>* errors) {
  return parse_document(text, file, errors, [&file](const JsonCursor& root) {
    root.allow_keys({"models", "applications"});
    ServingConfig serving;
    serving.models = read_models(root, file);
    const auto applications = root.find("applications");
    if (!applications) return serving;
    UniqueNames names("model or application");
    if (root.status().ok()) {
      for (const ModelConfig& model : serving.models) names.add(model.name, *applications);
    }
    for (const JsonCursor& element : applications->elements("a list of applications")) {
      serving.applications.push_back(read_application(element, serving.models));
      names.add(serving.applications.back().name, element.required("name"));
    }
    return serving;
  });
}

Result<ServingConfig> load_serving(const std::filesystem::path& file) {
  return load_file(file, parse_serving);
}

}  // namespace gpulet::config
