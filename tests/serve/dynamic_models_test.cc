#include "serve/values/dynamic_models.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "gpulet/serve/frontend_core.h"
#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::dynamic_models_test {
namespace {

using testing::at_ms;
using testing::byte_model;
using testing::FrontendParts;
using testing::only;

// Takes and gives bytes of the request's length.
ServedModel bucket_of(const std::string& model, std::int64_t length, bool pads = true) {
  auto bucket = std::make_shared<Bucket>();
  bucket->model = model;
  bucket->length = length;
  bucket->inputs = {{"x", DataType::uint8, {kAnyLength}}};
  bucket->outputs = {{"y", DataType::uint8, {kAnyLength}}};
  if (pads) bucket->padding = {{std::byte{9}}};
  ServedModel served = byte_model(bucket_name(model, length), 1000, 10);
  served.inputs = with_length(bucket->inputs, length);
  served.outputs = with_length(bucket->outputs, length);
  served.bucket = std::move(bucket);
  return with_sizes(std::move(served)).value();
}

InferRequest request_of(const std::string& model, std::size_t length) {
  InferRequest request;
  request.tag = 5;
  request.model = model;
  request.inputs = {{"x", DataType::uint8, {static_cast<std::int64_t>(length)}}};
  request.payload = Bytes::own(std::vector<std::byte>(length, std::byte{1}));
  return request;
}

DynamicModels models_with(std::initializer_list<std::int64_t> lengths, bool pads = true) {
  DynamicModels models;
  for (const std::int64_t length : lengths) models.set(bucket_of("m", length, pads));
  return models;
}

TEST(DynamicModelsTest, ARequestGoesToTheShortestBucketThatHoldsIt) {
  const DynamicModels models = models_with({4, 8});
  const DynamicModel& model = *models.find("m");
  for (const auto& [length, name] :
       {std::pair(1U, "m@4"), std::pair(4U, "m@4"), std::pair(5U, "m@8"), std::pair(8U, "m@8")}) {
    const BucketChoice choice = choose_bucket(model, request_of("m", length));
    EXPECT_EQ(choice.name, name) << length;
    EXPECT_EQ(choice.length, length);
    EXPECT_TRUE(choice.status.ok()) << choice.status.to_string();
  }
}

TEST(DynamicModelsTest, RequestsThatFitNoBucketAreInvalid) {
  const DynamicModels models = models_with({4, 8});
  const auto code_of = [&](const InferRequest& request) {
    return choose_bucket(*models.find("m"), request).status.code();
  };
  EXPECT_EQ(code_of(request_of("m", 9)), StatusCode::invalid);
  EXPECT_EQ(code_of(request_of("m", 0)), StatusCode::invalid);
  InferRequest request = request_of("m", 3);
  request.inputs[0].type = DataType::int8;
  EXPECT_EQ(code_of(request), StatusCode::invalid);
  request = request_of("m", 3);
  request.inputs[0].name = "z";
  EXPECT_EQ(code_of(request), StatusCode::invalid);
  request = request_of("m", 3);
  request.payload = Bytes();
  EXPECT_EQ(code_of(request), StatusCode::invalid);
  request = request_of("m", 3);
  request.inputs.clear();
  EXPECT_EQ(code_of(request), StatusCode::invalid);
}

TEST(DynamicModelsTest, WithoutPaddingOnlyTheLengthsThemselvesFit) {
  const DynamicModels models = models_with({4, 8}, false);
  EXPECT_TRUE(choose_bucket(*models.find("m"), request_of("m", 4)).status.ok());
  EXPECT_EQ(choose_bucket(*models.find("m"), request_of("m", 5)).status.code(),
            StatusCode::invalid);
}

TEST(DynamicModelsTest, TheFrontIsThatOfTheLongestBucketThatIsLeft) {
  DynamicModels models = models_with({4, 8});
  EXPECT_EQ(models.find("m")->front.name, "m");
  EXPECT_EQ(models.find("m")->front.inputs[0].shape, std::vector<std::int64_t>{kAnyLength});
  EXPECT_EQ(models.find("m")->front.input_bytes, 8U);
  models.remove(bucket_of("m", 8));
  EXPECT_EQ(models.find("m")->front.input_bytes, 4U);
  models.remove(bucket_of("m", 4));
  EXPECT_EQ(models.find("m"), nullptr);
  models.set(byte_model("fixed", 1000, 10));
  EXPECT_TRUE(models.all().empty());
}

// Of requests to m@4 and m@8, the first of which is asleep.
struct TwoBuckets {
  TwoBuckets() {
    parts.models.add(bucket_of("m", 4), at_ms(0));
    parts.models.add(bucket_of("m", 8), at_ms(0));
  }
  std::vector<ReplyToClient> send(InferRequest request, bool forwarded = false) {
    FrontendEffects effects;
    RequestReceived event{ClientId{3}, std::move(request)};
    event.forwarded = forwarded;
    parts.intake.on_request(std::move(event), at_ms(0), effects);
    return only<ReplyToClient>(effects);
  }
  std::size_t queued(const std::string& name) {
    return parts.dispatcher.queues().queued(parts.models.find(name)->current.index);
  }
  FrontendParts parts;
};

TEST(DynamicAdmission, EveryBucketHasItsOwnQueue) {
  TwoBuckets world;
  EXPECT_TRUE(world.send(request_of("m", 3)).empty());
  EXPECT_TRUE(world.send(request_of("m", 4)).empty());
  EXPECT_TRUE(world.send(request_of("m", 7)).empty());
  EXPECT_EQ(world.queued("m@4"), 2U);
  EXPECT_EQ(world.queued("m@8"), 1U);
}

TEST(DynamicAdmission, ClientsCannotNameBuckets) {
  TwoBuckets world;
  const auto replies = world.send(request_of("m@4", 4));
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].reply.status.code(), StatusCode::not_found);
  // Other frontends do.
  EXPECT_TRUE(world.send(request_of("m@4", 4), true).empty());
  EXPECT_EQ(world.queued("m@4"), 1U);
}

TEST(DynamicAdmission, TheLimitCountsThePaddedBytes) {
  TwoBuckets world;
  world.parts.limiter = InflightLimiter({100, 7});
  const auto replies = world.send(request_of("m", 5));
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].reply.status.code(), StatusCode::overloaded);
  EXPECT_TRUE(world.send(request_of("m", 3)).empty());
  EXPECT_EQ(world.parts.limiter.bytes(), 4U);
}

TEST(DynamicAnswers, AreCutToTheRequestsLength) {
  FrontendParts parts;
  const ServedModel served = bucket_of("m", 4);
  parts.models.add(served, at_ms(0));
  const auto reply_with = [&](std::size_t bytes, bool of_another_frontend) {
    Request request;
    request.client = ClientId{3};
    request.bucket = served.bucket;
    request.length = 3;
    std::vector<Bytes> outputs{Bytes::own(std::vector<std::byte>(bytes))};
    FrontendEffects effects;
    if (of_another_frontend) {
      InferReply reply;
      reply.outputs = served.outputs;
      reply.payload = std::move(outputs);
      parts.responses.write_forwarded(std::move(request), std::move(reply), effects);
    } else {
      DispatchOutput output;
      output.answers.push_back({std::move(request), parts.models.find("m@4")->current.index,
                                Status(), std::move(outputs)});
      parts.responses.write(std::move(output), effects);
    }
    return only<ReplyToClient>(effects).at(0).reply;
  };
  for (const bool of_another_frontend : {false, true}) {
    const InferReply reply = reply_with(4, of_another_frontend);
    ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
    EXPECT_EQ(reply.outputs[0].shape, std::vector<std::int64_t>{3});
    EXPECT_EQ(reply.payload[0].size(), 3U);
  }
  // Another frontend may have another version of the model.
  EXPECT_EQ(reply_with(5, true).status.code(), StatusCode::internal);
}

TEST(DynamicListing, ShowsModelsInPlaceOfTheirBuckets) {
  Catalogue catalogue;
  // '-' sorts before the '@' of buckets.
  for (const char* const name : {"a", "m-large", "z"})
    catalogue.models.push_back(byte_model(name, 1000, 10));
  catalogue.models.push_back(bucket_of("m", 4));
  catalogue.models.push_back(bucket_of("m", 8));
  const FrontendCore core({}, catalogue, at_ms(0));
  std::vector<std::string> names;
  ModelsReply page;
  do {
    page = core.models_after(names.empty() ? "" : names.back(), 1);
    for (const ModelInfo& model : page.models) names.push_back(model.name);
  } while (page.more);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "m", "m-large", "z"}));

  const std::vector<ModelInfo> one = core.models({"m"});
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].lengths, (std::vector<std::uint32_t>{4, 8}));
  EXPECT_TRUE(one[0].pads);
  EXPECT_EQ(one[0].inputs[0].shape, std::vector<std::int64_t>{kAnyLength});
  EXPECT_TRUE(one[0].version.starts_with("hash-of-m@"));
  EXPECT_EQ(core.model("m")->model.input_bytes, 8U);
  EXPECT_EQ(core.buckets_of("m"), (std::vector<std::string>{"m@4", "m@8"}));
  EXPECT_TRUE(core.buckets_of("a").empty());
}

void read_catalogue(FrontendParts& parts, const ServedModel& model) {
  CatalogueChanged event;
  event.catalogue.models = {model};
  FrontendEffects effects;
  parts.catalogue.begin(std::move(event), at_ms(1), effects);
  parts.catalogue.step(at_ms(1), effects);
}

TEST(DynamicCatalogue, AChangedPaddingIsInForceAtOnce) {
  FrontendParts parts;
  ServedModel model = bucket_of("m", 4);
  parts.models.add(model, at_ms(0));
  auto bucket = std::make_shared<Bucket>(*model.bucket);
  bucket->padding = {{std::byte{7}}};
  model.bucket = bucket;
  read_catalogue(parts, model);
  EXPECT_EQ(parts.models.served(*parts.models.find("m@4")).bucket->padding, bucket->padding);
  EXPECT_EQ(parts.models.table().dynamic().find("m")->front.bucket->padding, bucket->padding);
}

// Its gpulets still serve the previous version.
TEST(DynamicCatalogue, ChangedTensorsAreInForceWithTheirVersion) {
  FrontendParts parts;
  ServedModel model = bucket_of("m", 4);
  model.configured_rate = 10;
  parts.models.add(model, at_ms(0));
  auto bucket = std::make_shared<Bucket>(*model.bucket);
  bucket->inputs[0].shape.push_back(2);
  model.inputs = with_length(bucket->inputs, 4);
  model.bucket = bucket;
  read_catalogue(parts, with_sizes(model).value());
  ASSERT_TRUE(parts.models.find("m@4")->next.has_value());
  EXPECT_EQ(parts.models.table().dynamic().find("m")->front.inputs[0].shape,
            std::vector<std::int64_t>{kAnyLength});
  FrontendEffects effects;
  parts.models.successions().finish(at_ms(2), effects);
  EXPECT_EQ(parts.models.table().dynamic().find("m")->front.inputs[0].shape,
            (std::vector<std::int64_t>{kAnyLength, 2}));
}

}  // namespace
}  // namespace gpulet::serve::dynamic_models_test
