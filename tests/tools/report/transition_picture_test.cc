#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/schedule/mig.h"
#include "tests/support/names.h"
#include "tools/report/plan_report.h"

namespace gpulet::tools {
namespace {

using schedule::mig::Transition;
using schedule::mig::TransitionTask;
using support::holds;

std::size_t count_of(std::string_view text, std::string_view what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

int number_after(std::string_view element, std::string_view attribute) {
  const std::size_t at = element.find(attribute);
  return at == element.npos ? 0 : std::stoi(std::string(element.substr(at + attribute.size())));
}

struct Text {
  int left = 0, right = 0, top = 0, bottom = 0;
  std::string content;
};

// The bounding boxes of the texts, with letters of 0.6 times the font size.
std::vector<Text> texts_of(std::string_view document) {
  std::vector<Text> texts;
  for (std::size_t at = document.find("<text"); at != document.npos;
       at = document.find("<text", at + 1)) {
    const std::string_view element = document.substr(at, document.find("</text>", at) - at);
    const std::string content(element.substr(element.find('>') + 1));
    const int font_px = number_after(element, "font-size=\"");
    const auto letters = std::count_if(content.begin(), content.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    });
    const int width = static_cast<int>(letters) * font_px * 6 / 10;
    const int x = number_after(element, " x=\"");
    const int y = number_after(element, " y=\"");
    const int left = element.find("middle") == element.npos ? x : x - width / 2;
    texts.push_back({left, left + width, y - font_px, y, content});
  }
  return texts;
}

// A cyclic shift of the instances on `count` devices by one device, with one spare device.
TransitionTask round_of(std::uint32_t count) {
  TransitionTask task;
  const auto a100 = partition::MigGeometry::of("a100-80").value();
  for (std::uint32_t device = 0; device <= count; ++device) {
    task.devices.push_back(
        {"a-node-of-a-long-name-" + std::to_string(device / 3), a100, device % 3});
    task.services.push_back("service-" + std::to_string(device));
  }
  for (std::uint32_t device = 0; device < count; ++device) {
    for (auto [all_serving, place] :
         {std::pair(&task.from, device), std::pair(&task.to, (device + 1) % count)}) {
      all_serving->push_back({place, {4, 0}, {{device, 40}}});
      all_serving->push_back({place, {1, 6}, {{device, 5}, {count, 1}}});
    }
  }
  return task;
}

TEST(PictureTest, ElementsEndAndTextsAreEscaped) {
  TransitionTask task = round_of(4);
  task.services[0] = "service <0> & co";
  const std::string document = draw_transition(plan_transition(task).value(), task);
  EXPECT_EQ(document.rfind("<svg xmlns=", 0), 0U);
  EXPECT_TRUE(holds(document, "</svg>"));
  EXPECT_EQ(count_of(document, "<text"), count_of(document, "</text>"));
  EXPECT_EQ(count_of(document, "<rect"), count_of(document, "/>") + count_of(document, "</rect>"));
  EXPECT_TRUE(holds(document, "service &lt;0&gt; &amp; co"));
  EXPECT_FALSE(holds(document, "service <"));
}

TEST(PictureTest, ShowsBeforeTheFullestStagesAndAfter) {
  const TransitionTask task = round_of(6);
  const Transition transition = plan_transition(task).value();
  ASSERT_GT(transition.stages.size(), 4U) << "more than are shown";
  const std::string document = draw_transition(transition, task);
  EXPECT_TRUE(holds(document, ">Before: 6 devices, 12 instances<"));
  EXPECT_TRUE(holds(document, ">After: 6 devices, 12 instances<"));
  EXPECT_EQ(count_of(document, ">Stage "), 4U);
  EXPECT_TRUE(holds(document, ">+4g<"));
  EXPECT_TRUE(holds(document, ">−4g<"));
  EXPECT_TRUE(holds(document, "4g@0 on device 2 of a-node-of-a-long-name-1\n"));
}

TEST(PictureTest, TextsNeitherOverlapNorLeaveThePicture) {
  const TransitionTask task = round_of(30);
  const std::string document = draw_transition(plan_transition(task).value(), task);
  const int width = number_after(document, " width=\"");
  const int height = number_after(document, " height=\"");
  const std::vector<Text> texts = texts_of(document);
  ASSERT_GT(texts.size(), 300U);
  for (std::size_t at = 0; at < texts.size(); ++at) {
    const Text& one = texts[at];
    EXPECT_TRUE(one.left >= 0 && one.right <= width && one.top >= 0 && one.bottom <= height)
        << one.content;
    for (std::size_t before = 0; before < at; ++before) {
      const Text& other = texts[before];
      const bool apart = one.right <= other.left || other.right <= one.left ||
                         one.bottom <= other.top || other.bottom <= one.top;
      EXPECT_TRUE(apart) << one.content << " and " << other.content;
    }
  }
}

TEST(PictureTest, ShowsTheDevicesWhereNothingChanges) {
  TransitionTask task = round_of(2);
  task.to = task.from;
  const std::string document = draw_transition(plan_transition(task).value(), task);
  EXPECT_EQ(count_of(document, ">Stage "), 0U);
  EXPECT_EQ(count_of(document, ">4g<"), 4U);
}

}  // namespace
}  // namespace gpulet::tools
