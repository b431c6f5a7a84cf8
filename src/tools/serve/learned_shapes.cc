#include "tools/serve/learned_shapes.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/proxy_messages.h"
#include "tools/report/format.h"
#include "tools/serve/open_shapes.h"
#include "tools/serve/proxy_formats.h"

namespace gpulet::tools {
namespace {

using Shapes = std::vector<std::vector<std::int64_t>>;

constexpr Duration kLongestRun = std::chrono::minutes(1);

std::string question_of(const config::ModelConfig& model, const std::vector<TensorSpec>& inputs,
                        const std::vector<std::string>& outputs) {
  ModelToLoad load;
  load.name = model.name;
  load.file = model.file.string();
  load.inputs = inputs;
  for (const std::string& name : outputs) load.outputs.emplace_back().name = name;
  return protocol::encode(ProxyCommand(LoadModels{.models = {std::move(load)}})).head;
}

// The lines that the proxy prints (proxy/proxy.h).
Result<Shapes> parse_shapes(std::string_view answer) {
  const std::string_view first = take_line(answer);
  constexpr std::string_view kFailed = "failed: ";
  if (first.starts_with(kFailed))
    return Status(StatusCode::invalid, std::string(first.substr(kFailed.size())));
  if (first != "ok") return Status(StatusCode::unavailable, "the proxy did not answer");
  Shapes shapes;
  while (!answer.empty()) {
    auto shape = parse_dimensions(take_line(answer));
    // A size of 0 is none that can be served.
    if (!shape) return Status(StatusCode::invalid, "an output has no elements");
    shapes.push_back(std::move(*shape));
  }
  return shapes;
}

}  // namespace

LearnShapes shape_learner(const ProxyPrograms& programs) {
  const std::filesystem::path program = programs.onnx.empty() ? programs.proxy : programs.onnx;
  return [program](const config::ModelConfig& model, const std::vector<TensorSpec>& inputs,
                   const std::vector<std::string>& outputs) -> Result<Shapes> {
    GPULET_TRY(const auto format, config::format_of(model.file));
    if (format != config::FileFormat::onnx)
      return Status(StatusCode::invalid, "only ONNX files are run to learn shapes");
    GPULET_TRY(const auto answer, ask_proxy(program, "--output-shapes",
                                            question_of(model, inputs, outputs), kLongestRun));
    return parse_shapes(answer);
  };
}

}  // namespace gpulet::tools
