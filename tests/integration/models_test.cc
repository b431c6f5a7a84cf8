// For each exported model, as TorchScript and as ONNX, the answer through frontend, backend and
// proxy equals LibTorch's own on the same input.
#include <gtest/gtest.h>
#include <torch/script.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>

#include "gpulet/base/random.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/serve/world.h"

namespace gpulet::testing {
namespace {

constexpr std::uint64_t kRequestsPerModel = 3;
constexpr double kTolerance = 1e-4;  // of the output's largest magnitude
constexpr std::chrono::minutes kPatience{8};
constexpr std::ptrdiff_t kModelsOfBoth = 4;

// To load the large ones takes minutes if programs are not optimised; scripts/test --quick leaves
// those out. Of these, a deep network of each kind is served: the others add only weights of up to
// half a gigabyte.
enum class FileSize { small, large };
constexpr std::uintmax_t kSmallBytes = 40'000'000;
const std::set<std::string> kServedLargeModels{"bert", "densenet161", "resnet50"};

// The program that serves the models, and their files.
enum class Served { torchscript, onnx, both };

struct Case {
  FileSize size;
  Served served;
};

std::filesystem::path onnx_file_of(const config::ModelConfig& model) {
  return std::filesystem::path(model.file).replace_extension(".onnx");
}

std::vector<config::ModelConfig> exported_models(FileSize size) {
  const auto models =
      config::load_models(std::filesystem::path(GPULET_SOURCE_DIR) / "config/models.json");
  if (!models.ok()) throw std::runtime_error(models.status().to_string());
  std::vector<config::ModelConfig> exported;
  for (config::ModelConfig model : models.value()) {
    if (!std::filesystem::exists(model.file)) continue;
    const bool is_small = std::filesystem::file_size(model.file) <= kSmallBytes;
    if (is_small != (size == FileSize::small)) continue;
    if (!is_small && !kServedLargeModels.contains(model.name)) continue;
    model.slo_ms = 120000;  // this test is not about latency
    model.rate = 0.3;
    model.max_batch = 2;  // enough to share a batch; a backend warms up every size
    exported.push_back(model);
  }
  return exported;
}

// Random values in [-1, 1), or random token ids for integers.
Bytes random_input(const std::vector<TensorSpec>& inputs, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes;
  const auto append = [&bytes](auto value) {
    const auto raw = std::bit_cast<std::array<std::byte, sizeof(value)>>(value);
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  };
  for (const TensorSpec& input : inputs) {
    const std::size_t elements = byte_size(input).value() / byte_size(input.type);
    for (std::size_t i = 0; i < elements; ++i) {
      if (input.type == DataType::int64) {
        append(static_cast<std::int64_t>(random.below(1000)));
      } else {
        append(static_cast<float>(2 * random.uniform() - 1));
      }
    }
  }
  return Bytes::own(std::move(bytes));
}

std::vector<torch::Tensor> run_directly(torch::jit::Module& network,
                                        const config::ModelConfig& model, const Bytes& input) {
  std::vector<torch::jit::IValue> arguments;
  std::size_t offset = 0;
  for (const TensorSpec& spec : model.inputs) {
    std::vector<std::int64_t> shape{1};
    shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
    const auto type = spec.type == DataType::int64 ? torch::kInt64 : torch::kFloat32;
    const auto bytes = input.slice(offset, byte_size(spec).value()).view();
    arguments.emplace_back(
        torch::from_blob(const_cast<std::byte*>(bytes.data()), shape, type).clone());
    offset += bytes.size();
  }
  const torch::jit::IValue result = network.forward(arguments);
  if (result.isTensor()) return {result.toTensor()};
  std::vector<torch::Tensor> outputs;
  for (const torch::jit::IValue& one : result.toTuple()->elements())
    outputs.push_back(one.toTensor());
  return outputs;
}

void expect_equal(const torch::Tensor& expected, const Bytes& answered, const std::string& what) {
  const torch::Tensor direct = expected.to(torch::kFloat32).contiguous().flatten();
  ASSERT_EQ(static_cast<std::size_t>(direct.numel()) * sizeof(float), answered.size()) << what;
  std::vector<float> served(static_cast<std::size_t>(direct.numel()));
  std::memcpy(served.data(), answered.view().data(), answered.size());
  double largest = 0;
  double difference = 0;
  for (std::size_t i = 0; i < served.size(); ++i) {
    const double wanted = direct.data_ptr<float>()[i];
    ASSERT_TRUE(std::isfinite(served[i])) << what;
    largest = std::max(largest, std::abs(wanted));
    difference = std::max(difference, std::abs(wanted - served[i]));
  }
  EXPECT_GT(largest, 0) << what;
  EXPECT_LE(difference, kTolerance * largest) << what;
  ::testing::Test::RecordProperty(what, std::to_string(difference / largest));
}

// With the files to be served: gpulet-proxy serves every second one as ONNX where there are both.
// Two of each format show that one process runs both. The other cases serve every model.
std::vector<config::ModelConfig> models_to_serve(const Case& wanted) {
  std::vector<config::ModelConfig> models = exported_models(wanted.size);
  if (wanted.served == Served::torchscript) return models;
  std::erase_if(models, [](const config::ModelConfig& model) {
    return !std::filesystem::exists(onnx_file_of(model));
  });
  if (wanted.served == Served::both && std::ssize(models) > kModelsOfBoth)
    models.erase(models.begin() + kModelsOfBoth, models.end());
  for (std::size_t i = 0; i < models.size(); ++i) {
    if (wanted.served == Served::onnx || i % 2 == 0) models[i].file = onnx_file_of(models[i]);
  }
  return models;
}

// The requests and replies of one model have the tags model * kRequestsPerModel + 1 and following.
struct Answers {
  std::map<std::uint64_t, Bytes> inputs;
  std::map<std::uint64_t, InferReply> replies;
};

// Serves all requests in a cluster that is gone afterwards: OpenBLAS ends its threads when the
// process forks, so a proxy that starts during run_directly() would make that wait forever.
Answers serve(const std::vector<config::ModelConfig>& models, Served formats) {
  std::map<std::string, double> believed_ms;
  for (const config::ModelConfig& model : models) believed_ms[model.name] = 500;
  // This test is about answers: on a busy machine, large models load for minutes.
  ClusterChanges changes;
  changes.frontend = [](config::FrontendConfig& config) { config.load_timeout = kPatience; };
  changes.backend = [](config::BackendConfig& config) { config.load_timeout = kPatience; };
  Cluster cluster(models, serve::testing::card_profile(believed_ms), {}, "[]", changes);
  if (formats == Served::onnx) {
    cluster.add_onnx_backend("n0");
  } else {
    cluster.add_real_backend("n0");
  }
  cluster.wait_until_serving(kPatience);

  StreamClient client(cluster.client_port());
  Answers served;
  for (std::size_t m = 0; m < models.size(); ++m) {
    for (std::uint64_t i = 0; i < kRequestsPerModel; ++i) {
      InferRequest request;
      request.tag = m * kRequestsPerModel + i + 1;
      request.model = models[m].name;
      request.inputs = models[m].inputs;
      request.payload = served.inputs[request.tag] = random_input(models[m].inputs, request.tag);
      client.send(request);
    }
  }
  const auto all_replied = [&] { return client.replies().size() == served.inputs.size(); };
  EXPECT_TRUE(client.run_until(all_replied, std::chrono::minutes(4)));
  for (const auto& [tag, replies] : client.replies()) served.replies.emplace(tag, replies.front());
  return served;
}

class ModelsTest : public ::testing::TestWithParam<Case> {};

TEST_P(ModelsTest, AnswersEqualLibTorchCalledDirectly) {
  const std::vector<config::ModelConfig> models = models_to_serve(GetParam());
  if (models.empty()) GTEST_SKIP() << "no exported models: run scripts/export_models.py";
  const Answers served = serve(models, GetParam().served);
  ASSERT_EQ(served.replies.size(), served.inputs.size());
  std::uint32_t largest_batch = 0;
  for (std::size_t m = 0; m < models.size(); ++m) {
    const auto file = std::filesystem::path(models[m].file).replace_extension(".pt");
    torch::jit::Module network = torch::jit::load(file.string());
    network.eval();
    const torch::InferenceMode inference;
    for (std::uint64_t i = 0; i < kRequestsPerModel; ++i) {
      const std::uint64_t tag = m * kRequestsPerModel + i + 1;
      const InferReply& reply = served.replies.at(tag);
      ASSERT_TRUE(reply.status.ok()) << models[m].name << ": " << reply.status.to_string();
      largest_batch = std::max(largest_batch, reply.batch_size);
      const std::vector<torch::Tensor> direct =
          run_directly(network, models[m], served.inputs.at(tag));
      ASSERT_EQ(direct.size(), reply.payload.size()) << models[m].name;
      for (std::size_t output = 0; output < direct.size(); ++output) {
        expect_equal(direct[output], reply.payload[output],
                     models[m].name + " output " + std::to_string(output));
      }
    }
  }
  EXPECT_GT(largest_batch, 1U);  // requests share batches and still get their own answers
}

INSTANTIATE_TEST_SUITE_P(Small, ModelsTest,
                         ::testing::Values(Case{FileSize::small, Served::torchscript}));
INSTANTIATE_TEST_SUITE_P(Large, ModelsTest,
                         ::testing::Values(Case{FileSize::large, Served::torchscript}));
#ifdef GPULET_HAS_ONNXRUNTIME
INSTANTIATE_TEST_SUITE_P(SmallOnnx, ModelsTest,
                         ::testing::Values(Case{FileSize::small, Served::onnx}));
INSTANTIATE_TEST_SUITE_P(LargeOnnx, ModelsTest,
                         ::testing::Values(Case{FileSize::large, Served::onnx}));
INSTANTIATE_TEST_SUITE_P(SmallOfBoth, ModelsTest,
                         ::testing::Values(Case{FileSize::small, Served::both}));
#endif

}  // namespace
}  // namespace gpulet::testing
