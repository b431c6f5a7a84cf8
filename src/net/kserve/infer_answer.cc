#include <cstring>
#include <utility>

#include "gpulet/net/kserve/http_api.h"
#include "json_text.h"
#include "tensor_json.h"

namespace gpulet::net::kserve {
namespace {

void append_texts(std::string& json, const std::vector<std::string>& texts) {
  json += '[';
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) json += ',';
    append_text(json, texts[i]);
  }
  json += ']';
}

void append_shape(std::string& json, const std::vector<std::int64_t>& shape) {
  json += '[';
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) json += ',';
    json += std::to_string(shape[i]);
  }
  json += ']';
}

class AnswerWriter {
 public:
  explicit AnswerWriter(SharedMemory& regions) : regions_(regions) {
    constexpr std::size_t kUsualHead = 512;
    json_.reserve(kUsualHead);
  }

  void begin(const InferCall& call, const Model& model) {
    json_ += R"({"model_name":)";
    append_text(json_, model.name);
    json_ += R"(,"model_version":)";
    append_text(json_, model.version);
    if (!call.id.empty()) {
      json_ += R"(,"id":)";
      append_text(json_, call.id);
    }
    json_ += R"(,"outputs":[)";
  }

  [[nodiscard]] Status add(const AskedOutput& asked, const AnsweredOutput& output) {
    const bool labelled = !output.labels.empty();
    if (json_.back() != '[') json_ += ',';
    json_ += R"({"name":)";
    append_text(json_, output.spec.name);
    json_ += R"(,"datatype":")";
    json_ += labelled ? std::string_view("BYTES") : to_string(output.spec.type);
    json_ += R"(","shape":)";
    append_shape(json_, output.spec.shape);
    Status added;
    if (asked.region || asked.binary) {
      added =
          add_raw(asked, labelled ? http::bytes_of(lengths_and_texts(output.labels)) : output.data);
    } else if (labelled) {
      json_ += R"(,"data":)";
      append_texts(json_, output.labels);
    } else {
      json_ += R"(,"data":)";
      added = append_numbers(json_, output.spec, output.data.view());
    }
    json_ += '}';
    return added;
  }

  [[nodiscard]] http::HttpResponse take() {
    json_ += "]}";
    http::HttpResponse response;
    if (binary_) {
      response.headers.reserve(2);
      response.headers.push_back({"Content-Type", "application/octet-stream"});
      response.headers.push_back({"Inference-Header-Content-Length", std::to_string(json_.size())});
    } else {
      response.headers = {{"Content-Type", "application/json"}};
    }
    response.body.reserve(1 + blobs_.size());
    response.body.push_back(http::bytes_of(std::move(json_)));
    for (Bytes& blob : blobs_) response.body.push_back(std::move(blob));
    return response;
  }

 private:
  // Clients take any `parameters` of an output to hold `binary_data_size`: one in shared memory has
  // none, as with Triton.
  Status add_raw(const AskedOutput& asked, Bytes raw) {
    if (asked.region) return regions_.write(*asked.region, raw);
    binary_ = true;
    json_ += R"(,"parameters":{"binary_data_size":)" + std::to_string(raw.size()) + '}';
    blobs_.push_back(std::move(raw));
    return {};
  }

  SharedMemory& regions_;
  std::string json_;
  std::vector<Bytes> blobs_;
  bool binary_ = false;
};

}  // namespace

http::HttpResponse write_infer(const InferCall& call, const Model& model,
                               std::span<const serve::InferReply> replies, SharedMemory& regions) {
  const Result<std::vector<AnsweredOutput>> outputs = gather(call, model, replies);
  if (!outputs.ok()) return error(outputs.status());
  AnswerWriter writer(regions);
  writer.begin(call, model);
  for (std::size_t i = 0; i < outputs.value().size(); ++i) {
    if (Status added = writer.add(call.outputs[i], outputs.value()[i]); !added.ok())
      return error(added);
  }
  return writer.take();
}

}  // namespace gpulet::net::kserve
