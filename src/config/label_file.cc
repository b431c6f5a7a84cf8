#include "gpulet/config/label_file.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <system_error>

#include "config/wording.h"

namespace gpulet::config {
namespace {

bool is_control(char character) {
  const auto byte = static_cast<unsigned char>(character);
  return byte < 0x20 || byte == 0x7f;
}

// byte_size() has shown that the product fits.
std::size_t elements_of(const TensorSpec& tensor) {
  std::size_t elements = 1;
  for (const std::int64_t size : tensor.shape) elements *= static_cast<std::size_t>(size);
  return elements;
}

Status wrong(const std::filesystem::path& file, const std::string& what, const std::string& mend) {
  return {StatusCode::invalid, file.string() + ": " + what + "; " + mend};
}

}  // namespace

Result<std::vector<std::string>> parse_labels(std::string_view text,
                                              const std::filesystem::path& file,
                                              const TensorSpec& output) {
  if (text.size() > kMostLabelBytes) {
    return wrong(file, "it has more than " + std::to_string(kMostLabelBytes) + " bytes",
                 "write one short label a line");
  }
  const std::size_t most = elements_of(output);
  std::vector<std::string> labels;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string place = "line " + std::to_string(labels.size() + 1);
    if (labels.size() == most) {
      return wrong(file,
                   place + " is one more than output " + in_quotes(output.name) +
                       " has elements (" + std::to_string(most) + ")",
                   "write one label for each element");
    }
    if (line.size() > kLongestLabel) {
      return wrong(file,
                   place + " has " + std::to_string(line.size()) + " bytes; a label may have " +
                       std::to_string(kLongestLabel),
                   "shorten it");
    }
    if (std::any_of(line.begin(), line.end(), is_control))
      return wrong(file, place + " has a control character", "write a text file");
    labels.emplace_back(line);
  }
  if (labels.empty()) return wrong(file, "it is empty", "write one label a line");
  return labels;
}

Result<std::vector<std::string>> load_labels(const std::filesystem::path& file,
                                             const TensorSpec& output) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    return Status(StatusCode::not_found,
                  file.string() + ": there is no such file; correct the path of the labels");
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text(kMostLabelBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || (!stream && !stream.eof()))
    return Status(StatusCode::not_found, file.string() + ": cannot be read; check its rights");
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return parse_labels(text, file, output);
}

const TensorSpec& output_named(const ModelConfig& model, std::string_view name) {
  return *std::find_if(model.outputs.begin(), model.outputs.end(),
                       [name](const TensorSpec& output) { return output.name == name; });
}

}  // namespace gpulet::config
