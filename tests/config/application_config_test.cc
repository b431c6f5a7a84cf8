#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gpulet/config/model_config.h"
#include "tests/config/error_case.h"

namespace gpulet::config {
namespace {

using ::testing::ElementsAre;

constexpr const char* kModels = R"({"models":[
  {"name":"find","file":"f","slo_ms":1,"inputs":[{"name":"image","type":"FP32","shape":[3,30,30]}],
   "outputs":[{"name":"boxes","type":"FP32","shape":[9,4]},{"name":"scores","type":"FP32","shape":[9,5]}]},
  {"name":"name","file":"n","slo_ms":1,"inputs":[{"name":"image","type":"FP32","shape":[3,8,8]}],
   "outputs":[{"name":"logits","type":"FP32","shape":[10]}]}],"applications":[)";
constexpr const char* kFind = R"({"name":"find","model":"find","inputs":["request.image"]})";
constexpr const char* kBest =
    R"({"name":"best","step":"select","count":2,"classes":[1,3],"inputs":["find.boxes","find.scores"]})";
constexpr const char* kCut =
    R"({"name":"cut","step":"crop","inputs":["request.image","best.rows[1]"]})";
constexpr const char* kFit =
    R"({"name":"fit","step":"resize","height":8,"width":8,"inputs":["cut.image"]})";
constexpr const char* kName = R"({"name":"name","model":"name","inputs":["fit.image"]})";
constexpr const char* kLabel = R"({"name":"label","step":"argmax","inputs":["name.logits"]})";
constexpr const char* kFromLabel = R"({"name":"label","from":"label.index"})";

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

std::string application(const std::vector<std::string>& nodes,
                        const std::vector<std::string>& outputs,
                        const std::string& name = "watch") {
  return std::string(kModels) + R"({"name":")" + name +
         R"(","inputs":[{"name":"image","type":"FP32","shape":[3,30,30]}],"slo_ms":100,"rate":2.5,"nodes":[)" +
         join(nodes) + R"(],"outputs":[)" + join(outputs) + "]}]}";
}

TEST(ApplicationConfig, SortsNodesTopologically) {
  const auto loaded =
      parse_serving(application({kLabel, kName, kFit, kCut, kBest, kFind}, {kFromLabel}), "f.json");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value().models.size(), 2U);
  ASSERT_EQ(loaded.value().applications.size(), 1U);
  const ApplicationConfig& watch = loaded.value().applications[0];
  EXPECT_EQ(watch.slo_ms, 100);
  EXPECT_EQ(watch.rate, 2.5);
  ASSERT_EQ(watch.nodes.size(), 6U);
  EXPECT_EQ(watch.nodes[0].work, decltype(watch.nodes[0].work)(ModelCall{"find"}));
  EXPECT_EQ(watch.nodes[1].work, decltype(watch.nodes[0].work)(Step(SelectStep{2, {1, 3}})));
  EXPECT_THAT(watch.nodes[1].inputs, ElementsAre(TensorSource{0, 0, {}}, TensorSource{0, 1, {}}));
  EXPECT_THAT(watch.nodes[2].inputs, ElementsAre(TensorSource{{}, 0, {}}, TensorSource{1, 0, 1}));
  EXPECT_EQ(watch.nodes[2].outputs[0].shape, (std::vector<std::int64_t>{3, 0, 0}));
  EXPECT_EQ(watch.nodes[3].outputs[0].shape, (std::vector<std::int64_t>{3, 8, 8}));
  EXPECT_THAT(watch.outputs, ElementsAre(TensorSpec{"label", DataType::int64, {1}}));
  EXPECT_THAT(watch.answered, ElementsAre(TensorSource{5, 0, {}}));
  const auto models =
      parse_models(application({kFind, kBest, kCut, kFit, kName, kLabel}, {kFromLabel}), "f.json");
  EXPECT_EQ(models.ok() ? models.value().size() : 0, 2U);
}

TEST(ApplicationConfig, HasNoStrings) {
  const std::string models =
      R"({"models":[{"name":"m","file":"m.onnx","slo_ms":5,
          "inputs":[{"name":"x","type":"FP32","shape":[2]}],
          "outputs":[{"name":"y","type":"FP32","shape":[2]},{"name":"s","type":"BYTES","shape":[1]}]}],
         "applications":[{"name":"a","slo_ms":9,"rate":1,"inputs":[)";
  const std::string nodes = R"(],"nodes":[{"name":"n","model":"m","inputs":["request.x"]}],
                               "outputs":[{"name":"y","from":"n.y"}]}]})";
  expect_errors({{models + R"({"name":"x","type":"FP32","shape":[2]})" + nodes,
                  "/applications/0/nodes/0/model: "},
                 {models + R"({"name":"x","type":"BYTES","shape":[2]})" + nodes,
                  "/applications/0/nodes/0/inputs/0: "}},
                parse_models);
}

TEST(ApplicationConfig, ErrorsNamePlaceAndValue) {
  const std::string here = "/applications/0/";
  const std::string from_boxes = R"({"name":"b","from":"find.boxes"})";
  const auto find_on = [](const std::string& edge) {
    return R"({"name":"find","model":"find","inputs":[")" + edge + R"("]})";
  };
  expect_errors(
      {
          {application({kFind}, {R"({"name":"x","from":"fnd.boxes"})"}),
           here + "outputs/0/from: ", R"("fnd")"},
          {application({kFind}, {R"({"name":"x","from":"find"})"}),
           here + "outputs/0/from: ", R"("find")"},
          {application({kFind}, {R"({"name":"x","from":"find.box"})"}),
           here + "outputs/0/from: ", R"("find")"},
          {application({kFind}, {R"({"name":"x","from":"find.boxes[9]"})"}),
           here + "outputs/0/from: "},
          {application({find_on("request.picture")}, {from_boxes}),
           here + "nodes/0/inputs/0: ", R"("request")"},
          {application({find_on("request.image[0]")}, {from_boxes}), here + "nodes/0/inputs/0: "},
          {application({kFind, kBest, kCut,
                        R"({"name":"name","model":"name","inputs":["cut.image"]})", kLabel},
                       {kFromLabel}),
           here + "nodes/3/inputs/0: "},
          {application({kFind, kBest, kCut}, {R"({"name":"x","from":"cut.image"})"}),
           here + "outputs/0/from: "},
          {application({kFind, kBest,
                        R"({"name":"cut","step":"crop","inputs":["request.image","best.rows"]})"},
                       {from_boxes}),
           here + "nodes/2/inputs/1: "},
          {application(
               {kFind,
                R"({"name":"best","step":"select","classes":[5],"inputs":["find.boxes","find.scores"]})"},
               {from_boxes}),
           here + "nodes/1/inputs/1: "},
          {application(
               {kFind,
                R"({"name":"best","step":"select","count":10,"inputs":["find.boxes","find.scores"]})"},
               {from_boxes}),
           here + "nodes/1/inputs/0: "},
          {application({R"({"name":"a","model":"find","inputs":["b.image"]})",
                        R"({"name":"b","step":"crop","inputs":["request.image","a.boxes[0]"]})"},
                       {R"({"name":"x","from":"a.boxes"})"}),
           here + "nodes/0/inputs: "},
          {application({kFind, kBest}, {from_boxes}), here + "nodes/1/name: ", R"("best")"},
          {application({R"({"name":"find","model":"fnid","inputs":["request.image"]})"},
                       {from_boxes}),
           here + "nodes/0/model: ", R"("fnid")"},
          {application(
               {R"({"name":"fit","step":"resize","height":8,"width":8,"inputs":["request.image"]})"},
               {R"({"name":"x","from":"fit.image"})"}),
           here + "nodes: ", R"("model")"},
          {application({R"({"name":"a.b","model":"find","inputs":["request.image"]})"},
                       {from_boxes}),
           here + "nodes/0/name: ", R"("a.b")"},
          {application({R"({"name":"find","step":"resice","inputs":["request.image"]})"},
                       {from_boxes}),
           here + "nodes/0/step: ", R"("resice")"},
          {application({kFind}, {from_boxes}, "name"), here + "name: ", R"("name")"},
          {application({kFind}, {}), here + "outputs: ", R"("name")"},
          {std::string(kModels) +
               R"({"name":"w","slo_ms":1,"inputs":[{"name":"image","type":"FP32","shape":[3,30,30]},{"name":"spare","type":"FP32","shape":[1]}],"nodes":[)" +
               kFind + R"(],"outputs":[)" + from_boxes + "]}]}",
           here + "inputs/1: ", R"("request.spare")"},
      },
      parse_serving);
}

}  // namespace
}  // namespace gpulet::config
