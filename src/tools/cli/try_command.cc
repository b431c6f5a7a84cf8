// gpulet try: sends a sample request to a served model and prints what comes back for people.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"
#include "gpulet/load/client.h"
#include "tools/cli/command.h"
#include "tools/cli/infer_call.h"
#include "tools/cli/infer_input.h"
#include "tools/cli/target_options.h"
#include "tools/report/format.h"
#include "tools/report/run_report.h"

namespace gpulet::tools {
namespace {

// Tensors of up to so many elements are printed whole, and rows of up to so many columns.
constexpr std::size_t kFewElements = 16;
constexpr std::size_t kFewColumns = 16;
constexpr std::size_t kMostRows = 10;
constexpr std::size_t kFirstValues = 5;
constexpr int kDigits = 4;

struct TryOptions {
  TargetOptions target;
  std::string model;
  std::string file;
  std::vector<double> mean;
  std::vector<double> deviation;
  std::string labels;
  std::size_t top = 5;
  std::uint64_t seed = 1;
};

bool is_image_file(const std::string& file) {
  constexpr std::array<std::string_view, 6> kImages{".jpg", ".jpeg", ".png",
                                                    ".pgm", ".ppm",  ".pnm"};
  std::string ending = std::filesystem::path(file).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  return std::find(kImages.begin(), kImages.end(), ending) != kImages.end();
}

std::optional<Normalisation> normalisation_of(const TryOptions& options) {
  if (options.mean.empty() && options.deviation.empty()) return std::nullopt;
  return Normalisation{options.mean.empty() ? std::vector{0.0} : options.mean,
                       options.deviation.empty() ? std::vector{1.0} : options.deviation};
}

bool takes_strings(const ModelInfo& model) {
  return std::any_of(model.inputs.begin(), model.inputs.end(), [](const TensorSpec& input) {
    return input.type == DataType::bytes && !input.image;
  });
}

// Sets the sizes of dynamic dimensions and of encoded images in the model's inputs.
Result<Bytes> random_payload(const TryOptions& options, ModelInfo& model) {
  if (takes_strings(model)) {
    return Status(
        StatusCode::invalid,
        fmt::format("model {} takes strings; give them in a file: gpulet try {} FILE.json",
                    model.name, model.name));
  }
  const std::vector<std::int64_t> lengths(model.lengths.begin(), model.lengths.end());
  GPULET_TRY(load::InputPool pool, load::random_inputs(model.inputs, options.seed, lengths));
  model.inputs = pool.inputs_of(0);
  return std::move(pool.requests.front());
}

Result<Bytes> payload_of(const TryOptions& options, ModelInfo& model) {
  if (options.file.empty()) return random_payload(options, model);
  if (is_image_file(options.file))
    return read_image_input(options.file, model, normalisation_of(options));
  return read_infer_input(options.file, model.inputs);
}

// ---- what comes back

std::string number_text(double value) {
  return std::isfinite(value) && value == std::floor(value) && std::abs(value) < 1e15
             ? fmt::format("{:.0f}", value)
             : fmt::format("{:.{}g}", value, kDigits + 1);
}

std::string values_text(const TensorSpec& output, const Bytes& bytes, std::size_t first,
                        std::size_t count) {
  std::string text;
  for (std::size_t at = first; at < first + count; ++at)
    text += (at == first ? "" : ", ") + number_text(value_at(output.type, bytes.view(), at));
  return text;
}

std::string rows_text(const TensorSpec& output, const Bytes& bytes, std::size_t columns) {
  const std::size_t rows = bytes.size() / byte_size(output.type) / columns;
  std::string text;
  for (std::size_t row = 0; row < std::min(rows, kMostRows); ++row)
    text += fmt::format("  {}: {}\n", row, values_text(output, bytes, row * columns, columns));
  if (rows > kMostRows) text += fmt::format("  and {} further rows\n", rows - kMostRows);
  return text;
}

std::string largest_text(const TryOptions& options, const TensorSpec& output, const Bytes& bytes,
                         const std::vector<std::string>& labels) {
  Table table({{"class"}, {"value"}, {labels.empty() ? "" : "label", Table::Align::left}});
  for (const ClassScore& one : largest(output, bytes, options.top))
    table.add_row({std::to_string(one.index), number_text(one.value), label_of(labels, one.index)});
  return table.to_string();
}

std::string summary_text(const TensorSpec& output, const Bytes& bytes, std::size_t elements) {
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  double sum = 0;
  for (std::size_t at = 0; at < elements; ++at) {
    const double value = value_at(output.type, bytes.view(), at);
    least = std::min(least, value);
    most = std::max(most, value);
    sum += value;
  }
  return fmt::format("  from {} to {}, mean {}; the first: {}\n", number_text(least),
                     number_text(most), number_text(sum / static_cast<double>(elements)),
                     values_text(output, bytes, 0, std::min(elements, kFirstValues)));
}

// Rows of scores without the dimensions of size 1 around them.
std::vector<std::int64_t> wide_dimensions(const TensorSpec& output) {
  std::vector<std::int64_t> wide;
  std::copy_if(output.shape.begin(), output.shape.end(), std::back_inserter(wide),
               [](std::int64_t size) { return size != 1; });
  return wide;
}

std::string output_text(const TryOptions& options, const TensorSpec& output, const Bytes& bytes,
                        const std::vector<std::string>& labels) {
  if (output.type == DataType::bytes)
    return "  " + json_line(values_json(output.type, bytes.view())) + "\n";
  const std::size_t elements = bytes.size() / byte_size(output.type);
  if (elements == 0) return "  no values\n";
  const std::vector<std::int64_t> wide = wide_dimensions(output);
  if (elements <= kFewElements && labels.empty())
    return fmt::format("  {}\n", values_text(output, bytes, 0, elements));
  if (wide.size() <= 1) return largest_text(options, output, bytes, labels);
  const auto columns = static_cast<std::size_t>(wide.back());
  if (wide.size() == 2 && columns <= kFewColumns) return rows_text(output, bytes, columns);
  return summary_text(output, bytes, elements);
}

std::string sent_text(const TryOptions& options, const ModelInfo& model) {
  std::string inputs;
  for (const TensorSpec& input : model.inputs)
    inputs += (inputs.empty() ? "" : ", ") + input.name + ' ' + to_string(input);
  return fmt::format("sent {}: {}\n", options.file.empty() ? "random values" : options.file,
                     inputs);
}

std::string response_text(const TryOptions& options, const InferResponse& response,
                          const std::vector<std::string>& labels) {
  const InferReply& reply = response.reply;
  std::string text =
      fmt::format("{} answered in {} ms: {} ms in the queue, {} ms in a batch of {}\n",
                  options.model, fixed(response.latency_ms, 1), fixed(to_ms(reply.queued), 1),
                  fixed(to_ms(reply.executed), 1), reply.batch_size);
  for (std::size_t at = 0; at < reply.outputs.size(); ++at) {
    text += fmt::format("\n{} {}\n{}", reply.outputs[at].name, to_string(reply.outputs[at]),
                        output_text(options, reply.outputs[at], reply.payload[at], labels));
  }
  return text;
}

int try_model(const TryOptions& options, const load::Target& target) {
  const Result<std::vector<std::string>> labels = read_labels(options.labels);
  if (!labels.ok()) return bad_input(labels.status().within("--labels"));
  Result<ModelInfo> model = find_model(target, options.model);
  if (!model.ok()) {
    const bool unknown = model.status().code() == StatusCode::not_found;
    return unknown ? bad_input(model.status()) : run_failed(model.status());
  }
  Result<Bytes> payload = payload_of(options, model.value());
  if (!payload.ok()) return bad_input(payload.status());
  std::cout << sent_text(options, model.value()) << std::flush;
  InferRequest request;
  request.model = options.model;
  request.inputs = model.value().inputs;
  request.payload = std::move(payload).value();
  const Result<InferResponse> response = send_request(target, request);
  if (!response.ok()) return run_failed(response.status());
  std::cout << response_text(options, response.value(), labels.value());
  return kSucceeded;
}

}  // namespace

void add_try_command(CLI::App& app, Action& chosen) {
  const auto [command, options] =
      add_command(app, chosen, "try",
                  "send a sample request to a served model and show what comes back", try_model);
  add_target_options(*command, options->target);
  command->add_option("model", options->model, "the model or application")
      ->required()
      ->type_name(kModelName);
  command->add_option(
      "file", options->file,
      fmt::format("what to send: an image ({}), a .json file or raw tensors, as for "
                  "gpulet infer (default: random values)",
                  image_formats()));
  command
      ->add_option("--mean", options->mean,
                   "subtract this from an image's values: one number, or one per channel")
      ->delimiter(',');
  command
      ->add_option("--std", options->deviation,
                   "divide an image's values by this, after --mean: one number, or one per channel")
      ->delimiter(',');
  command->add_option("--labels", options->labels,
                      "file with the names of the classes, one per line");
  add_checked(*command, "--top", options->top, "how many of the largest elements to show",
              natural_number());
  add_checked(*command, "--seed", options->seed, "random seed of the values", natural_number());
  command->footer("Exits with 1 if the request was refused or failed.");
}

}  // namespace gpulet::tools
