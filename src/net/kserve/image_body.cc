#include "net/kserve/image_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/kserve/json.h"
#include "net/kserve/multipart.h"

namespace gpulet::net::kserve {
namespace {

constexpr std::string_view kForm = "multipart/form-data";
constexpr std::array<std::string_view, 2> kImages{"image/jpeg", "image/png"};
constexpr std::uint32_t kClasses = 5;        // of each output with labels
constexpr std::size_t kMostOtherParts = 64;  // fields of a form that are no images

std::string_view content_type_of(const http::Headers& headers) {
  return http::find_header(headers, "Content-Type");
}

bool is_form(std::string_view content_type) {
  return http::same_ignoring_case(media_type(content_type), kForm);
}

bool is_image(std::string_view media) {
  return std::any_of(kImages.begin(), kImages.end(), [media](std::string_view image) {
    return http::same_ignoring_case(media, image);
  });
}

Status check_takes_images(const Model& model, std::string_view content_type) {
  if (model.inputs.size() == 1 && model.inputs.front().image) return {};
  return invalid(
      fmt::format("a body of type {} is for a model whose only input is an encoded image, and "
                  "model {} is none; "
                  "send its inputs as JSON, or write \"encoded\": true in its entry",
                  in_quotes(media_type(content_type)), in_quotes(model.name)));
}

// The images of a body as elements of BYTES, and how many there are.
struct Images {
  std::string elements;
  std::int64_t count = 0;

  void add(std::string_view image) {
    append_element(elements, image);
    ++count;
  }
};

Result<Images> images_in(std::string_view content_type, std::string_view body, const Model& model) {
  Images images;
  images.elements.reserve(body.size() + byte_size(DataType::bytes));
  if (!is_form(content_type)) {
    images.add(body);
    return images;
  }
  GPULET_TRY(const std::vector<FormPart> parts,
             read_form(content_type, body, model.max_batch + kMostOtherParts));
  for (const FormPart& part : parts) {
    if (part.is_file || is_image(part.content_type)) images.add(part.content);
  }
  if (images.count > 0) return images;
  return invalid("the form has no file; send an image as `curl -F image=@cat.jpg` does");
}

// All outputs; the classes of those that have labels.
std::vector<NamedOutput> outputs_of(const Model& model) {
  std::vector<NamedOutput> named;
  for (std::size_t i = 0; i < model.outputs.size(); ++i) {
    const TensorSpec& spec = model.outputs[i];
    NamedOutput& output = named.emplace_back();
    output.name = spec.name;
    const bool labelled = model.description && i < model.description->labels.size() &&
                          !model.description->labels[i].labels.empty();
    if (!labelled || spec.type == DataType::bytes) continue;
    output.parameters.classification =
        static_cast<std::uint32_t>(std::min<std::size_t>(kClasses, element_count(spec)));
  }
  return named;
}

}  // namespace

bool has_image_body(const http::Headers& headers) {
  const std::string_view type = content_type_of(headers);
  return is_form(type) || is_image(media_type(type));
}

Result<InferCall> read_images(const http::Headers& headers, const Bytes& body, const Model& model) {
  const std::string_view type = content_type_of(headers);
  if (Status takes = check_takes_images(model, type); !takes.ok()) return takes;
  const auto view = body.view();
  GPULET_TRY(Images images,
             images_in(type, {reinterpret_cast<const char*>(view.data()), view.size()}, model));
  GivenInput input;
  input.name = model.inputs.front().name;
  input.type = DataType::bytes;
  input.shape = {images.count, 1};
  input.data = http::bytes_of(std::move(images.elements));
  Result<InferCall> call = call_of(model, {std::move(input)}, Duration::zero());
  if (!call.ok()) return call;
  GPULET_TRY(std::vector<RequestedOutput> outputs,
             requested_outputs(outputs_of(model), false, model));
  call.value().outputs = std::move(outputs);
  return call;
}

}  // namespace gpulet::net::kserve
