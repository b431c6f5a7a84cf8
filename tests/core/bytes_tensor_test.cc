#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gpulet/core/tensor.h"

namespace gpulet::bytes_tensor_test {
namespace {

using Strings = std::vector<std::string>;

TensorSpec strings(std::string name, std::vector<std::int64_t> shape, std::size_t max_bytes) {
  return {std::move(name), DataType::bytes, std::move(shape), max_bytes};
}

Bytes bytes_of(const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  return Bytes::own({raw.begin(), raw.end()});
}

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.view().data()), bytes.size()};
}

std::string elements_of(const Strings& texts) {
  std::string elements;
  for (const std::string& text : texts) append_element(elements, text);
  return elements;
}

TEST(BytesTensor, AnElementIsItsLengthAndItsBytes) {
  EXPECT_EQ(elements_of({"ab", ""}), std::string("\2\0\0\0ab\0\0\0\0", 10));
}

TEST(BytesTensor, HasTheSizeOfItsSlot) {
  EXPECT_EQ(byte_size(strings("x", {2, 3}, 100)).value(), 100U);
  EXPECT_EQ(byte_size(strings("x", {2}, 8)).value(), 8U) << "room for empty elements";
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{7}, kMostSlotBytes + 1}) {
    EXPECT_EQ(byte_size(strings("x", {2}, wrong)).status().code(), StatusCode::invalid) << wrong;
  }
  EXPECT_EQ(byte_size(strings("x", {0}, 8)).status().code(), StatusCode::invalid);
}

TEST(BytesTensor, TheDefaultSlotGrowsWithTheElementsUpToTheLimit) {
  EXPECT_EQ(default_slot_bytes({}), kDefaultElementBytes);
  EXPECT_EQ(default_slot_bytes({2, 3}), 6 * kDefaultElementBytes);
  EXPECT_EQ(default_slot_bytes({1 << 30, 1 << 30}), kMostSlotBytes);
}

TEST(BytesTensor, PadsTheTensorsOfARequest) {
  const std::vector<TensorSpec> specs = {
      strings("a", {2}, 12), {"n", DataType::int16, {1}}, strings("b", {}, 6)};
  const auto slots = to_slots(specs, bytes_of(elements_of({"x", ""}) + "NN" + elements_of({"y"})));
  ASSERT_TRUE(slots.ok()) << slots.status().to_string();
  EXPECT_EQ(text_of(slots.value()), std::string("\1\0\0\0x\0\0\0\0\0\0\0NN\1\0\0\0y\0", 20));
  const auto again = to_slots(specs, slots.value());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again.value().view().data(), slots.value().view().data()) << "it needs no copy";
  EXPECT_EQ(text_of(without_padding(specs[0], slots.value().slice(0, 12)).value()),
            elements_of({"x", ""}));
}

TEST(BytesTensor, RefusesWhatIsNoRequest) {
  const std::vector<TensorSpec> specs = {strings("a", {2}, 12), {"n", DataType::int16, {1}}};
  const std::vector<std::string> requests = {
      "",
      elements_of({"x"}),
      elements_of({"x", "y"}),                             // without n
      elements_of({"x", "y"}) + "N",                       // n is cut off
      elements_of({"x", "y"}) + "NNN",                     // a byte too many
      elements_of({"12345", ""}) + "NN",                   // above the limit
      std::string("\1\0\0\0x\xff\xff\xff\xff", 9) + "NN",  // a length beyond the end
      std::string("\1\0\0\0x\0\0\0\0\0\0\1", 12) + "NN",   // a slot that does not end with zeros
      std::string("\7\0\0\0x\0\0\0\0\0\0\0", 12) + "NN"};  // a slot without its second element
  for (const std::string& request : requests) {
    const Status status = to_slots(specs, bytes_of(request)).status();
    EXPECT_EQ(status.code(), StatusCode::invalid) << ::testing::PrintToString(request);
  }
}

TEST(BytesTensor, TorchScriptHasNone) {
  EXPECT_TRUE(check_torchscript_types({{"x", DataType::fp32, {1}}}).ok());
  EXPECT_EQ(check_torchscript_types({{"x", DataType::fp32, {1}}, strings("s", {}, 9)}).code(),
            StatusCode::invalid);
}

RC_GTEST_PROP(BytesTensor, EveryRequestComesBack, (const std::vector<Strings>& tensors)) {
  std::vector<TensorSpec> specs;
  std::string request;
  for (const Strings& texts : tensors) {
    if (texts.empty()) continue;
    const std::string elements = elements_of(texts);
    specs.push_back(strings("t" + std::to_string(specs.size()),
                            {static_cast<std::int64_t>(texts.size())},
                            elements.size() + *rc::gen::inRange<std::size_t>(0, 20)));
    request += elements;
  }
  const auto slots = to_slots(specs, bytes_of(request));
  RC_ASSERT(slots.ok());
  RC_ASSERT(slots.value().size() == byte_size(specs).value());
  std::string back;
  std::size_t begin = 0;
  std::vector<Strings> found;
  for (const TensorSpec& spec : specs) {
    const auto content = without_padding(spec, slots.value().slice(begin, spec.max_bytes));
    RC_ASSERT(content.ok());
    back += text_of(content.value());
    begin += spec.max_bytes;
    const auto elements = elements_in(content.value().view(), element_count(spec));
    RC_ASSERT(elements.has_value());
    found.emplace_back(elements->begin(), elements->end());
  }
  RC_ASSERT(back == request);
  std::vector<Strings> given;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(given),
               [](const Strings& texts) { return !texts.empty(); });
  RC_ASSERT(found == given);
}

// Bytes of a peer: nothing outside of them is read, and what is accepted has its elements.
RC_GTEST_PROP(BytesTensor, AnyBytesAreHarmless,
              (const std::vector<std::uint8_t>& noise, std::uint8_t number)) {
  // Small lengths, so that some elements fit.
  std::string text;
  for (const std::uint8_t byte : noise) text += static_cast<char>(byte % 4);
  const std::int64_t count = 1 + number % 5;
  const TensorSpec spec = strings("x", {count}, std::max<std::size_t>(20, text.size()));
  const Bytes bytes = bytes_of(text);
  const auto end = elements_end(bytes.view(), static_cast<std::size_t>(count));
  const auto elements = elements_in(bytes.view(), static_cast<std::size_t>(count));
  RC_ASSERT(end.has_value() == elements.has_value());
  RC_ASSERT(without_padding(spec, bytes).ok() == end.has_value());
  const auto slots = to_slots({spec}, bytes);
  if (slots.ok()) {
    RC_ASSERT(slots.value().size() == spec.max_bytes);
    RC_ASSERT(to_slots({spec}, slots.value()).ok());
  }
  if (!elements) return;
  std::size_t total = 0;
  for (const std::string_view element : *elements) total += sizeof(std::uint32_t) + element.size();
  RC_ASSERT(total == *end && *end <= text.size());
}

}  // namespace
}  // namespace gpulet::bytes_tensor_test
