#include <bit>

#include "gpulet/base/sha256.h"
#include "gpulet/protocol/messages.h"

namespace gpulet {
namespace {

std::string to_text(const std::vector<TensorSpec>& tensors) {
  std::string text;
  for (const TensorSpec& tensor : tensors) {
    text += tensor.name + ' ' + to_string(tensor);
    // Only where there is one, so that other versions keep their ids.
    if (tensor.max_bytes > 0) text += ' ' + std::to_string(tensor.max_bytes);
    if (const std::string made = conversion_text(tensor); !made.empty()) text += ' ' + made;
    if (tensor.whole) text += " whole";
    text += '\n';
  }
  return text;
}

// Empty for the default numerics, so that versions without them keep their ids.
std::string to_text(const Numerics& numerics) {
  if (numerics == Numerics{}) return {};
  return '\n' + std::string(to_string(numerics.precision)) +
         (numerics.channels_last ? " channels_last " : " contiguous ") +
         std::to_string(std::bit_cast<std::uint64_t>(numerics.largest_error));
}

constexpr std::size_t kTensorDigits = 8;
constexpr std::size_t kShortDigits = 12;

}  // namespace

std::string version_of(const std::string& sha256, const std::vector<TensorSpec>& inputs,
                       const std::vector<TensorSpec>& outputs, const Numerics& numerics) {
  const std::string text = to_text(inputs) + '\n' + to_text(outputs) + to_text(numerics);
  return sha256 + '-' + sha256_of(text).substr(0, kTensorDigits);
}

std::string version_of(const ModelToServe& model) {
  return version_of(model.sha256, model.inputs, model.outputs, model.numerics);
}

std::string_view file_of_version(std::string_view version) {
  return version.substr(0, version.rfind('-'));
}

std::string short_version(const std::string& version) { return version.substr(0, kShortDigits); }

}  // namespace gpulet
