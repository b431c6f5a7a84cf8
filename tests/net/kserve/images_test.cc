// Bodies that are images, or forms with images.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>

#include "gpulet/core/tensor.h"
#include "net/kserve/multipart.h"
#include "tests/net/kserve/kserve_case.h"

namespace gpulet::net::kserve::images_test {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

Model image_model() {
  Model model = small_model();
  image::Preprocessing preprocessing;
  preprocessing.width = preprocessing.height = 8;
  model.inputs = {{"photo", DataType::bytes, {1}, 100, {}, preprocessing}};
  auto description = std::make_shared<serve::ModelDescription>();
  description->labels.push_back({"labels.txt", {"cat", "dog", "hen"}});
  model.description = std::move(description);
  return model;
}

Result<InferCall> read_as(const Model& model, const std::string& type, const std::string& body) {
  return read_infer({{"content-type", type}}, http::bytes_of(std::string(body)), model,
                    SharedMemory(false));
}

std::string element(std::string_view bytes) {
  std::string raw;
  append_element(raw, bytes);
  return raw;
}

constexpr const char* kFormType = "multipart/form-data; boundary=----edge";

std::string part(const std::string& disposition, const std::string& content,
                 const std::string& type = "") {
  return "------edge\r\nContent-Disposition: form-data; " + disposition + "\r\n" +
         (type.empty() ? "" : "Content-Type: " + type + "\r\n") + "\r\n" + content + "\r\n";
}

std::string form(const std::string& parts) { return parts + "------edge--\r\n"; }

TEST(KserveImages, AreOneRowOfTheOnlyInput) {
  for (const char* const type : {"image/jpeg", "image/png", "Image/JPEG; q=1"}) {
    const auto call = read_as(image_model(), type, "\xff\xd8 photo");
    ASSERT_TRUE(call.ok()) << call.status().to_string();
    ASSERT_EQ(call.value().requests.size(), 1U);
    EXPECT_EQ(text_of(call.value().requests[0].payload), element("\xff\xd8 photo"));
  }
}

TEST(KserveImages, AreAnsweredWithLabels) {
  const Model model = image_model();
  const auto call = read_as(model, "image/jpeg", "photo").value();
  const auto answer = write(call, model, {reply(model, {bytes_of<float>({1, 9, 4})})});
  EXPECT_EQ(answer.status, 200U);
  const Json output = json_of(answer)["outputs"][0];
  EXPECT_EQ(output["data"], (Json{"9:1:dog", "4:2:hen", "1:0:cat"}));
}

TEST(KserveImages, OfAModelWithoutLabelsAreAnsweredWithNumbers) {
  Model model = image_model();
  model.description = nullptr;
  const auto call = read_as(model, "image/png", "photo").value();
  const auto answer = write(call, model, {reply(model, {bytes_of<float>({1, 9, 4})})});
  EXPECT_EQ(json_of(answer)["outputs"][0]["data"], (Json{1.0, 9.0, 4.0}));
}

TEST(KserveImages, ComeAsTheFilesOfAForm) {
  const auto call = read_as(
      image_model(), kFormType,
      form(part("name=\"note\"", "no image") +
           part("name=\"image\"; filename=\"a;\\\"b.jpg\"", "one\r\n--two", "image/jpeg") +
           part("name=\"image\"; filename=b.png", "") + part("name=x", "three", "image/png")));
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  ASSERT_EQ(call.value().requests.size(), 3U);
  EXPECT_EQ(text_of(call.value().requests[0].payload), element("one\r\n--two"));
  EXPECT_EQ(text_of(call.value().requests[1].payload), element(""));
  EXPECT_EQ(text_of(call.value().requests[2].payload), element("three"));
}

TEST(KserveImages, AreRefusedWhereTheyDoNotFit) {
  const auto code = [](const Model& model, const std::string& type, const std::string& body) {
    return read_as(model, type, body).status().code();
  };
  const std::string file = part("name=i; filename=a.jpg", "x");
  EXPECT_EQ(code(small_model(), "image/jpeg", "photo"), StatusCode::invalid);
  EXPECT_EQ(code(image_model(), "image/jpeg", std::string(97, 'x')), StatusCode::invalid);
  EXPECT_EQ(code(image_model(), kFormType, form(file + file + file + file + file)),
            StatusCode::invalid);  // above max_batch
  EXPECT_EQ(code(image_model(), kFormType, form(part("name=i", "x"))), StatusCode::invalid);
  EXPECT_EQ(code(image_model(), kFormType, file), StatusCode::invalid);  // no end
  EXPECT_EQ(code(image_model(), kFormType, "x"), StatusCode::invalid);
  EXPECT_EQ(code(image_model(), "multipart/form-data", form(file)), StatusCode::invalid);
  EXPECT_EQ(code(image_model(), "multipart/form-data; boundary=\"\"", form(file)),
            StatusCode::invalid);
}

TEST(KserveImages, OfOtherTypesAreRequestsInJson) {
  const Json request{
      {"inputs",
       {{{"name", "photo"}, {"datatype", "BYTES"}, {"shape", {1, 1}}, {"data", {"text"}}}}}};
  const auto call = read_as(image_model(), "application/json", request.dump());
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(text_of(call.value().requests[0].payload), element("text"));
}

// ---- forms

TEST(Form, SkipsTextBeforeItsFirstBoundaryAndBlanksAfterOne) {
  const std::string body = "hello\r\n--b \t\r\nContent-Type: image/png; x=1\r\n\r\nP\r\n--b--";
  const auto parts = read_form("multipart/form-data; charset=x; BOUNDARY=\"b\"", body, 1);
  ASSERT_TRUE(parts.ok()) << parts.status().to_string();
  ASSERT_EQ(parts.value().size(), 1U);
  EXPECT_EQ(parts.value()[0].content, "P");
  EXPECT_EQ(parts.value()[0].content_type, "image/png");
  EXPECT_FALSE(parts.value()[0].is_file);
}

TEST(Form, HasBounds) {
  const std::string head(9000, 'x');
  const std::string body = "--b\r\nA: " + head + "\r\n\r\nP\r\n--b--";
  EXPECT_EQ(read_form("m; boundary=b", body, 1).status().code(), StatusCode::invalid);
  const std::string two = "--b\r\n\r\nP\r\n--b\r\n\r\nQ\r\n--b--";
  EXPECT_TRUE(read_form("m; boundary=b", two, 2).ok());
  EXPECT_EQ(read_form("m; boundary=b", two, 1).status().code(), StatusCode::invalid);
  EXPECT_EQ(read_form("m; boundary=" + std::string(71, 'b'), two, 2).status().code(),
            StatusCode::invalid);
}

RC_GTEST_PROP(Form, ReturnsWhatWasWritten, (const std::vector<std::string>& contents)) {
  std::string body;
  for (const std::string& content : contents) {
    RC_PRE(content.find("--edge") == std::string::npos);
    body += "--edge\r\n\r\n" + content + "\r\n";
  }
  const std::string whole = body + "--edge--\r\n";
  const auto parts = read_form("m; boundary=edge", whole, contents.size());
  RC_ASSERT(parts.ok());
  RC_ASSERT(parts.value().size() == contents.size());
  for (std::size_t i = 0; i < contents.size(); ++i)
    RC_ASSERT(parts.value()[i].content == contents[i]);
}

}  // namespace
}  // namespace gpulet::net::kserve::images_test
