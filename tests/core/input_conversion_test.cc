#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "gpulet/core/tensor.h"
#include "tests/support/names.h"

namespace gpulet {
namespace {

using support::names;

// What clients send for an image of 4 x 6 pixels.
TensorSpec image() {
  TensorSpec spec{"image", DataType::uint8, {4, 6, 3}};
  spec.conversion = InputConversion{.from_channels_last = true,
                                    .mean = {0.485, 0.456, 0.406},
                                    .deviation = {0.229, 0.224, 0.225}};
  return spec;
}

TEST(InputConversion, TheModelTakesItsOwnTypeAndOrder) {
  EXPECT_EQ(model_input(image()), (TensorSpec{"image", DataType::fp32, {3, 4, 6}}));
  TensorSpec spec = image();
  spec.conversion->to_channels_last = true;
  spec.conversion->type = DataType::fp16;
  EXPECT_EQ(model_input(spec), (TensorSpec{"image", DataType::fp16, {4, 6, 3}}));
  spec = {"image", DataType::uint8, {3, 4, 6}};
  spec.conversion = InputConversion{.to_channels_last = true};
  EXPECT_EQ(model_input(spec), (TensorSpec{"image", DataType::fp32, {4, 6, 3}}));
}

TEST(InputConversion, OtherInputsStayAsTheyAre) {
  const std::vector<TensorSpec> plain = {{"bytes", DataType::uint8, {4, 6, 3}},
                                         {"numbers", DataType::fp32, {2}}};
  EXPECT_EQ(model_inputs(plain), plain);
  EXPECT_EQ(conversion_text(plain.front()), "");
}

TEST(InputConversion, WhatIsSentIsTheInverse) {
  for (const bool from_last : {false, true}) {
    for (const bool to_last : {false, true}) {
      const TensorSpec taken{"image", DataType::fp16, {3, 4, 6}};
      const auto sent = sent_input(
          taken, InputConversion{.from_channels_last = from_last, .to_channels_last = to_last});
      ASSERT_TRUE(sent.ok()) << sent.status().to_string();
      EXPECT_EQ(sent.value().type, DataType::uint8);
      EXPECT_EQ(model_input(sent.value()), taken);
    }
  }
  EXPECT_EQ(sent_input({"x", DataType::int64, {3}}, {}).status().code(), StatusCode::invalid);
}

TEST(InputConversion, HasTheNumbersOfTorchvision) {
  const std::vector<ChannelConversion> channels = channels_of(*image().conversion);
  ASSERT_EQ(channels.size(), 3U);
  for (const double byte : {0.0, 1.0, 127.0, 255.0}) {
    // transforms.ToTensor, then transforms.Normalize.
    EXPECT_NEAR(channels[0].factor * byte + channels[0].offset, (byte / 255 - 0.485) / 0.229,
                1e-12);
    EXPECT_NEAR(channels[2].factor * byte + channels[2].offset, (byte / 255 - 0.406) / 0.225,
                1e-12);
  }
}

TEST(InputConversion, OneNumberServesAllChannels) {
  InputConversion conversion{.scale = 1, .mean = {1, 2, 3}, .deviation = {2}};
  const std::vector<ChannelConversion> channels = channels_of(conversion);
  ASSERT_EQ(channels.size(), 3U);
  EXPECT_EQ(channels[2].factor, 0.5);
  EXPECT_EQ(channels[2].offset, -1.5);
  EXPECT_EQ(channels_of({}).size(), 1U);
  EXPECT_EQ(channels_of({}).front().factor, 1.0 / 255);
}

TEST(InputConversion, AcceptsWhatItCanConvert) {
  EXPECT_TRUE(check_conversion(image()).ok());
  TensorSpec vector{"x", DataType::uint8, {7}};
  vector.conversion = InputConversion{};
  EXPECT_TRUE(check_conversion(vector).ok());
}

TEST(InputConversion, RefusesWhatItCannotConvert) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::function<void(TensorSpec&)>> wrong = {
      [](TensorSpec& spec) { spec.type = DataType::int8; },
      [](TensorSpec& spec) { spec.conversion->type = DataType::int32; },
      [](TensorSpec& spec) {
        spec.conversion->mean = {0, 0};
      },
      [](TensorSpec& spec) { spec.conversion->mean.clear(); },
      [](TensorSpec& spec) {
        spec.conversion->deviation = {1, 1, 1, 1};
      },
      [](TensorSpec& spec) {
        spec.conversion->deviation = {0.2, 0, 0.2};
      },
      [](TensorSpec& spec) { spec.conversion->deviation = {-1}; },
      [](TensorSpec& spec) { spec.conversion->deviation = {NAN}; },
      [](TensorSpec& spec) { spec.conversion->mean = {kInfinity}; },
      [](TensorSpec& spec) { spec.conversion->mean = {NAN}; },
      [](TensorSpec& spec) { spec.conversion->scale = 0; },
      [](TensorSpec& spec) { spec.conversion->scale = kInfinity; },
      [](TensorSpec& spec) { spec.conversion->deviation = {1e-300}; },  // beyond FP32
      [](TensorSpec& spec) {
        spec.conversion->type = DataType::fp16;
        spec.conversion->deviation = {1e-5};  // beyond FP16
      },
      [](TensorSpec& spec) {
        spec.shape = {4, 6};
      },  // per channel
      [](TensorSpec& spec) {
        spec.shape = {4, 6, 3, 1};
      },
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    TensorSpec spec = image();
    wrong[i](spec);
    const Status status = check_conversion(spec);
    EXPECT_EQ(status.code(), StatusCode::invalid) << i;
    EXPECT_TRUE(names(status, "image")) << i;
  }
}

TEST(InputConversion, OnlyAnImageHasAnotherOrder) {
  TensorSpec spec{"x", DataType::uint8, {7, 3}};
  spec.conversion = InputConversion{.from_channels_last = true};
  EXPECT_EQ(check_conversion(spec).code(), StatusCode::invalid);
}

TEST(InputConversion, ATextIdentifiesIt) {
  const std::string text = conversion_text(image());
  EXPECT_EQ(conversion_text(image()), text);
  const std::vector<std::function<void(InputConversion&)>> changes = {
      [](InputConversion& other) { other.type = DataType::fp16; },
      [](InputConversion& other) { other.from_channels_last = false; },
      [](InputConversion& other) { other.to_channels_last = true; },
      [](InputConversion& other) { other.scale = std::nextafter(other.scale, 1); },
      [](InputConversion& other) { other.mean[1] = std::nextafter(other.mean[1], 1); },
      [](InputConversion& other) { other.deviation = {0.229}; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    TensorSpec other = image();
    changes[i](*other.conversion);
    EXPECT_NE(conversion_text(other), text) << i;
    EXPECT_TRUE(take_same_requests({image()}, {other})) << i;
  }
}

TEST(InputConversion, RequestsForAnotherTensorDiffer) {
  TensorSpec other = image();
  other.shape = {6, 4, 3};
  EXPECT_FALSE(take_same_requests({image()}, {other}));
  EXPECT_FALSE(take_same_requests({image()}, {}));
  other = image();
  other.name = "other";
  EXPECT_FALSE(take_same_requests({image()}, {other}));
}

}  // namespace
}  // namespace gpulet
