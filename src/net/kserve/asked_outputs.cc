#include <algorithm>
#include <utility>

#include "elements.h"
#include "gpulet/net/kserve/parameters.h"
#include "tensor_json.h"
#include "wording.h"

namespace gpulet::net::kserve {
namespace {

Result<AskedOutput> output_of(const NamedOutput& wanted, bool binary, const Model& model) {
  const auto found = std::find_if(model.outputs.begin(), model.outputs.end(),
                                  [&](const TensorSpec& spec) { return spec.name == wanted.name; });
  if (found == model.outputs.end()) {
    return invalid("unexpected inference output " + in_quotes(wanted.name) + " for model " +
                   in_quotes(model.name));
  }
  Result<std::optional<RegionSlice>> region = region_of(wanted.parameters);
  if (!region.ok()) return region.status().within("output " + in_quotes(wanted.name));
  return AskedOutput{.index = static_cast<std::size_t>(found - model.outputs.begin()),
                     .binary = wanted.parameters.binary_data.value_or(binary),
                     .classification = wanted.parameters.classification,
                     .region = std::move(region).value()};
}

// Before the inference rather than after it: what JSON cannot hold is not computed for nothing.
Status check_form(const AskedOutput& asked, const Model& model) {
  const TensorSpec& spec = model.outputs[asked.index];
  if (asked.binary || asked.region || asked.classification > 0 || has_json_form(spec.type))
    return {};
  return invalid("output " + in_quotes(spec.name) + ": " + std::string(to_string(spec.type)) +
                 " has no form in JSON; ask for it with 'binary_data'");
}

}  // namespace

Result<std::vector<AskedOutput>> asked_outputs(std::span<const NamedOutput> named, bool binary,
                                               const Model& model) {
  std::vector<AskedOutput> outputs;
  outputs.reserve(model.outputs.size());
  for (const NamedOutput& wanted : named) {
    Result<AskedOutput> output = output_of(wanted, binary, model);
    if (!output.ok()) return output.status();
    const std::size_t index = output.value().index;
    const bool again = std::any_of(outputs.begin(), outputs.end(),
                                   [index](const AskedOutput& one) { return one.index == index; });
    if (again) return invalid("output " + in_quotes(wanted.name) + " is asked for twice");
    outputs.push_back(std::move(output).value());
  }
  if (named.empty()) {
    for (std::size_t i = 0; i < model.outputs.size(); ++i)
      outputs.push_back({.index = i, .binary = binary});
  }
  for (const AskedOutput& output : outputs) {
    if (Status form = check_form(output, model); !form.ok()) return form;
  }
  return outputs;
}

}  // namespace gpulet::net::kserve
