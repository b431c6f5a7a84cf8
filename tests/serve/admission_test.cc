#include "serve/requests/admission.h"

#include <gtest/gtest.h>

#include <functional>

#include "gpulet/core/tensor.h"
#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::admission_test {
namespace {

using testing::at_ms;
using testing::byte_model;
using testing::FrontendParts;
using testing::only;

InferRequest request_for(const std::string& model) {
  InferRequest request;
  request.tag = 5;
  request.model = model;
  request.inputs = {{"", DataType::uint8, {1}}};
  request.payload = Bytes::own({std::byte{1}});
  return request;
}

TEST(Admission, QueuesOrRefuses) {
  struct Case {
    const char* what;
    std::function<void(FrontendParts&, InferRequest&)> arrange;
    StatusCode code;  // ok: queued
  };
  const std::vector<Case> cases = {
      {"a valid request", [](FrontendParts&, InferRequest&) {}, StatusCode::ok},
      {"an unknown model", [](FrontendParts&, InferRequest& request) { request.model = "x"; },
       StatusCode::not_found},
      {"no input", [](FrontendParts&, InferRequest& request) { request.inputs.clear(); },
       StatusCode::invalid},
      {"another name", [](FrontendParts&, InferRequest& request) { request.inputs[0].name = "y"; },
       StatusCode::invalid},
      {"another shape",
       [](FrontendParts&, InferRequest& request) { request.inputs[0].shape = {2}; },
       StatusCode::invalid},
      {"another type",
       [](FrontendParts&, InferRequest& request) { request.inputs[0].type = DataType::int32; },
       StatusCode::invalid},
      {"another size", [](FrontendParts&, InferRequest& request) { request.payload = Bytes(); },
       StatusCode::invalid},
      {"synthetic inputs, which are not allowed",
       [](FrontendParts&, InferRequest& request) {
         request.payload = Bytes();
         request.synthetic = true;
       },
       StatusCode::forbidden},
      {"synthetic inputs",
       [](FrontendParts& parts, InferRequest& request) {
         parts.options.synthetic_inputs = true;
         request.payload = Bytes();
         request.synthetic = true;
       },
       StatusCode::ok},
      {"synthetic inputs with bytes",
       [](FrontendParts& parts, InferRequest& request) {
         parts.options.synthetic_inputs = true;
         request.synthetic = true;
       },
       StatusCode::invalid},
      {"synthetic inputs of another shape",
       [](FrontendParts& parts, InferRequest& request) {
         parts.options.synthetic_inputs = true;
         request.payload = Bytes();
         request.inputs[0].shape = {2};
         request.synthetic = true;
       },
       StatusCode::invalid},
      {"synthetic inputs above the limit of bytes",
       [](FrontendParts& parts, InferRequest& request) {
         parts.options.synthetic_inputs = true;
         request.payload = Bytes();
         request.synthetic = true;
         parts.limiter = InflightLimiter({100, 0});
       },
       StatusCode::overloaded},
      {"a negative timeout",
       [](FrontendParts&, InferRequest& request) { request.timeout = Duration(-1); },
       StatusCode::invalid},
      {"draining",
       [](FrontendParts& parts, InferRequest&) { parts.admission.start_draining(false); },
       StatusCode::unavailable},
      {"too many requests",
       [](FrontendParts& parts, InferRequest&) {
         parts.limiter = InflightLimiter({0, 100});
       },
       StatusCode::overloaded},
      {"too many bytes",
       [](FrontendParts& parts, InferRequest&) {
         parts.limiter = InflightLimiter({100, 0});
       },
       StatusCode::overloaded},
      {"in quarantine",
       [](FrontendParts& parts, InferRequest&) {
         for (int i = 0; i < 4; ++i)
           parts.models.setbacks().quarantine().crashed("a", "ended by signal 11", at_ms(0));
       },
       StatusCode::unavailable},
      {"unserved by the plan",
       [](FrontendParts& parts, InferRequest&) {
         schedule::Plan plan;
         plan.unserved.push_back({"a", 10, "too slow"});
         parts.deployment.in_force().set_plan(plan);
         parts.demands.planned({{"a", 10, 1000}});
       },
       StatusCode::unavailable},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    FrontendParts parts;
    parts.models.add(byte_model("a", 1000, 10), at_ms(0));
    InferRequest request = request_for("a");
    one.arrange(parts, request);
    FrontendEffects effects;
    parts.intake.on_request({ClientId{3}, std::move(request)}, at_ms(0), effects);
    const std::vector<ReplyToClient> replies = only<ReplyToClient>(effects);
    const ModelIndex index = parts.models.find("a")->current.index;
    if (one.code == StatusCode::ok) {
      EXPECT_TRUE(replies.empty());
      EXPECT_EQ(parts.dispatcher.queues().queued(index), 1U);
      continue;
    }
    ASSERT_EQ(replies.size(), 1U);
    EXPECT_EQ(replies[0].client, ClientId{3});
    EXPECT_EQ(replies[0].reply.tag, 5U);
    EXPECT_EQ(replies[0].reply.status.code(), one.code);
    EXPECT_EQ(parts.dispatcher.queues().queued(index), 0U);
  }
}

TEST(Admission, AnUnexpectedRequestUrgentlyRequestsAPlan) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  FrontendEffects effects;
  parts.demands.planned({{"a", 10, 1000}});
  parts.intake.on_request({ClientId{3}, request_for("a")}, at_ms(0), effects);
  EXPECT_FALSE(parts.plan_requests.any()) << "the plan expects it";
  parts.demands.planned({});
  parts.intake.on_request({ClientId{3}, request_for("a")}, at_ms(0), effects);
  EXPECT_TRUE(parts.plan_requests.any() && parts.plan_requests.urgent());
}

TEST(Admission, RequestsForASleepingModelWaitForItToWake) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 100, 0), at_ms(0));
  FrontendEffects effects;
  parts.intake.on_request({ClientId{3}, request_for("a")}, at_ms(0), effects);
  EXPECT_TRUE(parts.models.find("a")->waking);
  InferRequest hurried = request_for("a");
  hurried.tag = 6;
  hurried.timeout = std::chrono::milliseconds(300);
  parts.intake.on_request({ClientId{3}, std::move(hurried)}, at_ms(0), effects);
  ASSERT_TRUE(effects.empty());

  const auto refused_by = [&](int ms) {
    DispatchOutput output;
    parts.dispatcher.pump(at_ms(ms), output);
    std::vector<std::uint64_t> tags;
    for (const Answer& answer : output.answers) tags.push_back(answer.request.tag);
    return tags;
  };
  EXPECT_EQ(refused_by(301), std::vector<std::uint64_t>{6}) << "its own timeout";
  EXPECT_EQ(refused_by(9999), std::vector<std::uint64_t>{});
  EXPECT_EQ(refused_by(10001), std::vector<std::uint64_t>{5}) << "FrontendOptions::wake_within";
}

// ---- strings

ServedModel string_model() {
  ServedModel model = byte_model("s", 1000, 10);
  model.inputs = {{"text", DataType::bytes, {1}, 20}};
  model.outputs = {{"word", DataType::bytes, {1}, 20}, {"n", DataType::uint8, {1}}};
  return with_sizes(model).value();
}

InferRequest string_request(const std::string& payload) {
  InferRequest request = request_for("s");
  request.inputs = {{"text", DataType::bytes, {1}}};
  const auto raw = std::as_bytes(std::span(payload));
  request.payload = Bytes::own({raw.begin(), raw.end()});
  return request;
}

std::string element(const std::string& text) {
  std::string raw;
  append_element(raw, text);
  return raw;
}

TEST(Admission, StringsBecomeSlots) {
  for (const bool padded : {false, true}) {
    FrontendParts parts;
    parts.models.add(string_model(), at_ms(0));
    std::string payload = element("hello");
    if (padded) payload.resize(20, '\0');
    FrontendEffects effects;
    parts.intake.on_request({ClientId{3}, string_request(payload)}, at_ms(0), effects);
    EXPECT_TRUE(only<ReplyToClient>(effects).empty());
    EXPECT_EQ(parts.limiter.bytes(), 20U);
  }
}

TEST(Admission, StringsThatDoNotFitAreRefusedByTheirName) {
  FrontendParts parts;
  parts.models.add(string_model(), at_ms(0));
  for (const std::string& payload :
       {std::string(), std::string("\5\0\0\0abc", 7), element("seventeen letters"),
        element("a") + element("b"), element("fits") + std::string("????????????")}) {
    FrontendEffects effects;
    parts.intake.on_request({ClientId{3}, string_request(payload)}, at_ms(0), effects);
    const std::vector<ReplyToClient> replies = only<ReplyToClient>(effects);
    ASSERT_EQ(replies.size(), 1U);
    EXPECT_EQ(replies[0].reply.status.code(), StatusCode::invalid);
  }
  EXPECT_EQ(parts.limiter.requests(), 0U);
}

// The process that wrote them is not trusted.
TEST(Responses, StringsHaveNoPaddingAndTheirSize) {
  FrontendParts parts;
  parts.models.add(string_model(), at_ms(0));
  const auto reply_to = [&](std::string slot) {
    slot.resize(20, '\0');
    const auto raw = std::as_bytes(std::span(slot));
    DispatchOutput output;
    output.answers.push_back({Request{.client = ClientId{3}},
                              parts.models.find("s")->current.index,
                              {},
                              {Bytes::own({raw.begin(), raw.end()}), Bytes::own({std::byte{7}})}});
    FrontendEffects effects;
    parts.responses.write(std::move(output), effects);
    return only<ReplyToClient>(effects).at(0).reply;
  };
  const InferReply good = reply_to(element("hi"));
  ASSERT_TRUE(good.status.ok()) << good.status.to_string();
  EXPECT_EQ(good.payload[0].size(), 6U);
  EXPECT_EQ(byte_size(good.outputs).value(), 7U);
  const InferReply hostile = reply_to("\xff\xff\xff\xff");
  EXPECT_EQ(hostile.status.code(), StatusCode::internal);
  EXPECT_TRUE(hostile.outputs.empty() && hostile.payload.empty());
}

TEST(InflightLimiter, CountsAPermitForAsLongAsACopyLives) {
  InflightLimiter limiter({2, 10});
  Result<InflightLimiter::Permit> first = limiter.enter(6);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(limiter.enter(5).status().code(), StatusCode::overloaded) << "bytes";
  Result<InflightLimiter::Permit> second = limiter.enter(4);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(limiter.enter(0).status().code(), StatusCode::overloaded) << "requests";
  InflightLimiter::Permit copy = first.value();
  first = Status(StatusCode::cancelled, "done");
  EXPECT_EQ(limiter.requests(), 2U);
  copy.reset();
  EXPECT_EQ(limiter.requests(), 1U);
  EXPECT_EQ(limiter.bytes(), 4U);
}

}  // namespace
}  // namespace gpulet::serve::admission_test
