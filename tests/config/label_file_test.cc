#include "gpulet/config/label_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace gpulet::config {
namespace {

using Labels = std::vector<std::string>;

const TensorSpec kThree{"y", DataType::fp32, {3}};

StatusCode refusal(const std::string& text) {
  return parse_labels(text, "l.txt", kThree).status().code();
}

TEST(LabelFile, HasOneLabelALine) {
  EXPECT_EQ(parse_labels("cat\ndog\n", "l.txt", kThree).value(), (Labels{"cat", "dog"}));
  EXPECT_EQ(parse_labels("cat\r\ntiger shark, Galeocerdo\r\n", "l.txt", kThree).value(),
            (Labels{"cat", "tiger shark, Galeocerdo"}));
  EXPECT_EQ(parse_labels("a\n\nc", "l.txt", kThree).value(), (Labels{"a", "", "c"}))
      << "an empty line keeps its place";
  EXPECT_EQ(parse_labels("caf\xc3\xa9", "l.txt", kThree).value(), (Labels{"caf\xc3\xa9"}));
}

TEST(LabelFile, IsRefusedWhereItIsNoneOfThatOutput) {
  EXPECT_EQ(refusal(""), StatusCode::invalid);
  EXPECT_EQ(refusal("a\nb\nc\nd\n"), StatusCode::invalid) << "more labels than elements";
  EXPECT_EQ(refusal("a\nb\x1b[1m\n"), StatusCode::invalid);
  EXPECT_EQ(refusal(std::string(kLongestLabel + 1, 'x')), StatusCode::invalid);
  EXPECT_EQ(refusal(std::string(kMostLabelBytes + 1, '\n')), StatusCode::invalid);
  EXPECT_EQ(refusal(std::string(kLongestLabel, 'x')), StatusCode::ok);
}

TEST(LabelFile, IsARegularFile) {
  const support::TemporaryFolder folder;
  folder.write("l.txt", "a\nb\n");
  EXPECT_EQ(load_labels(folder.path() / "l.txt", kThree).value(), (Labels{"a", "b"}));
  EXPECT_EQ(load_labels(folder.path() / "none", kThree).status().code(), StatusCode::not_found);
  EXPECT_EQ(load_labels(folder.path(), kThree).status().code(), StatusCode::not_found);
  EXPECT_EQ(load_labels("/dev/zero", kThree).status().code(), StatusCode::not_found);
}

}  // namespace
}  // namespace gpulet::config
