#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/percentile.h"
#include "gpulet/load/client.h"

namespace gpulet::load {
namespace {

using config::Arrivals;
using std::chrono::milliseconds;
using std::chrono::seconds;

Time at_ms(double ms) { return Time(from_ms(ms)); }

ModelLoad uniform(std::string name, double rate, Duration slo = milliseconds(50)) {
  return {.name = std::move(name), .arrivals = Arrivals::uniform, .rate = rate, .slo = slo};
}
ModelLoad closed(std::string name, std::uint32_t concurrency) {
  return {.name = std::move(name),
          .arrivals = Arrivals::closed,
          .concurrency = concurrency,
          .slo = milliseconds(50)};
}

class Trial {
 public:
  explicit Trial(const std::vector<ModelLoad>& models,
                 const GeneratorOptions& options = {.duration = seconds(10)})
      : generator(models, options,
                  [this](const RequestRecord& record) { records.push_back(record); }) {}

  std::vector<DueRequest> all_due(Time now) {
    std::vector<DueRequest> due;
    while (const auto request = generator.next(now)) due.push_back(*request);
    return due;
  }

  std::vector<RequestRecord> records;
  Generator generator;
};

TEST(OpenLoop, ReturnsDueRequestsWithTheirIntendedTimes) {
  Trial run({uniform("a", 100)});
  EXPECT_LT(run.generator.next_due(), at_ms(10));
  EXPECT_FALSE(run.generator.next(Time{} - milliseconds(1)));
  const std::vector<DueRequest> due = run.all_due(at_ms(500));
  ASSERT_EQ(due.size(), 50U);
  for (std::size_t i = 1; i < due.size(); ++i) {
    EXPECT_NEAR(to_ms(due[i].intended - due[i - 1].intended), 10, 1e-3);
  }
  EXPECT_GT(run.generator.next_due(), at_ms(500));
  EXPECT_NEAR(*run.generator.sender_lag().max_ms, to_ms(at_ms(500) - due.front().intended), 1e-6);
}

TEST(OpenLoop, KeepsItsScheduleWithoutReplies) {
  Trial run({uniform("a", 100)}, {.duration = seconds(5)});
  std::size_t sent = 0;
  for (int tick = 0; tick < 6000; ++tick) sent += run.all_due(at_ms(tick)).size();
  EXPECT_EQ(sent, 500U);
  EXPECT_EQ(run.generator.next_due(), kNever);
  EXPECT_FALSE(run.generator.finished());
  run.generator.fail_all(at_ms(7000));
  EXPECT_TRUE(run.generator.finished());
  const ModelRow row = run.generator.rows().front();
  EXPECT_EQ(row.errors, 500U);
  EXPECT_EQ(row.reasons.at(StatusCode::timeout).count, 500U);
  EXPECT_EQ(row.violation, 1);
}

TEST(OpenLoop, LatencyCountsFromTheIntendedTime) {
  Trial run({uniform("a", 10, milliseconds(150))});
  const DueRequest request =
      *run.generator.next(at_ms(190));  // two are due: the first at below 100 ms
  ASSERT_TRUE(run.generator.complete(request.tag, {}, at_ms(300)));
  ASSERT_EQ(run.records.size(), 1U);
  EXPECT_EQ(run.records[0].latency(), at_ms(300) - request.intended);
  EXPECT_EQ(*run.records[0].sent, at_ms(190));
  EXPECT_EQ(run.generator.rows()[0].late,
            1U);  // 110 ms from sending, but above 150 ms from the intended time
}

TEST(OpenLoop, AnotherModelDoesNotChangeArrivals) {
  const auto arrivals_of_a = [](std::vector<ModelLoad> models) {
    Trial run(models);
    std::vector<Time> times;
    for (const DueRequest& request : run.all_due(at_ms(9999))) {
      if (models[request.model].name == "a") times.push_back(request.intended);
    }
    return times;
  };
  ModelLoad a = uniform("a", 40);
  a.arrivals = Arrivals::poisson;
  EXPECT_EQ(arrivals_of_a({a}), arrivals_of_a({uniform("b", 7), a, uniform("c", 9)}));
}

TEST(OpenLoop, RequestsAboveTheOutstandingLimitAreUnsentErrors) {
  Trial run({uniform("a", 100), uniform("b", 1)}, {.duration = seconds(10), .max_outstanding = 20});
  EXPECT_EQ(run.all_due(at_ms(1000)).size(), 21U);
  EXPECT_TRUE(run.generator.outstanding_limit_hit());
  const ModelRow row = run.generator.rows().front();
  EXPECT_EQ(row.unsent, 80U);
  EXPECT_EQ(row.errors, 80U);
  EXPECT_EQ(row.dropped, 0U);  // the server refused nothing
  EXPECT_FALSE(run.records.front().sent.has_value());
}

TEST(OpenLoop, UsesTheInputsInTurn) {
  ModelLoad model = uniform("a", 100);
  model.inputs = 3;
  Trial run({model});
  std::vector<std::size_t> inputs;
  for (const DueRequest& request : run.all_due(at_ms(70))) inputs.push_back(request.input);
  EXPECT_EQ(inputs, (std::vector<std::size_t>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(OpenLoop, EndsEarlyOnRequest) {
  Trial run({uniform("a", 100)});
  const std::vector<DueRequest> due = run.all_due(at_ms(100));
  run.generator.end_sending(at_ms(100));
  EXPECT_EQ(run.generator.next_due(), kNever);
  for (const DueRequest& request : due) run.generator.complete(request.tag, {}, at_ms(120));
  EXPECT_TRUE(run.generator.finished());
}

std::vector<Time> arrivals_of(const ModelLoad& model, const Part& part, std::uint64_t seed = 1) {
  Trial run({model}, {.duration = seconds(10), .seed = seed, .part = part});
  std::vector<Time> times;
  for (const DueRequest& request : run.all_due(at_ms(9999))) times.push_back(request.intended);
  return times;
}

RC_GTEST_PROP(Parts, SharesAddUpAndDifferByOneAtMost, ()) {
  const auto of = *rc::gen::inRange<std::uint32_t>(1, 65);
  const auto count = *rc::gen::inRange<std::uint32_t>(0, 5000);
  const auto first = *rc::gen::inRange<std::size_t>(0, 1000);
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < of; ++i) {
    const std::uint32_t share = share_of(count, {.number = i, .of = of}, first);
    RC_ASSERT(share == count / of || share == count / of + 1);
    sum += share;
  }
  RC_ASSERT(sum == count);
}

RC_GTEST_PROP(Parts, OfUniformArrivalsAreTheArrivalsOfTheWhole, ()) {
  const auto of = *rc::gen::inRange<std::uint32_t>(1, 9);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const ModelLoad model = uniform("a", *rc::gen::inRange(1, 400));
  std::vector<Time> merged;
  for (std::uint32_t i = 0; i < of; ++i) {
    const std::vector<Time> times = arrivals_of(model, {.number = i, .of = of}, seed);
    merged.insert(merged.end(), times.begin(), times.end());
  }
  std::sort(merged.begin(), merged.end());
  RC_ASSERT(merged == arrivals_of(model, {}, seed));
}

TEST(Parts, OfPoissonArrivalsAreIndependentAndReproducible) {
  ModelLoad model = uniform("a", 400);
  model.arrivals = Arrivals::poisson;
  const std::vector<Time> first = arrivals_of(model, {.number = 0, .of = 4});
  const std::vector<Time> second = arrivals_of(model, {.number = 1, .of = 4});
  for (const auto& times : {first, second})
    EXPECT_NEAR(static_cast<double>(times.size()), 1000, 100);
  std::vector<Time> common;
  std::set_intersection(first.begin(), first.end(), second.begin(), second.end(),
                        std::back_inserter(common));
  EXPECT_TRUE(common.empty());
  EXPECT_EQ(second, arrivals_of(model, {.number = 1, .of = 4}));
  EXPECT_NE(second, arrivals_of(model, {.number = 1, .of = 4}, 2));
}

TEST(Parts, ShareClosedLoopsAndTheOutstandingLimit) {
  std::size_t a = 0;
  std::size_t b = 0;
  std::vector<std::size_t> sizes;
  for (std::uint32_t i = 0; i < 2; ++i) {
    Trial run({closed("a", 1), closed("b", 1), uniform("c", 1000)},
              {.duration = seconds(1), .max_outstanding = 21, .part = {.number = i, .of = 2}});
    for (const DueRequest& request : run.all_due(at_ms(999))) {
      a += request.model == 0 ? 1 : 0;
      b += request.model == 1 ? 1 : 0;
    }
    sizes.push_back(run.generator.progress().outstanding);
  }
  EXPECT_EQ(a, 1U);
  EXPECT_EQ(b, 1U);
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1 + 11, 1 + 10})) << "a loop and its share of 21";
}

TEST(Parts, BeginAtDifferentInputs) {
  ModelLoad model = uniform("a", 100);
  model.inputs = 4;
  Trial run({model}, {.duration = seconds(10), .part = {.number = 1, .of = 2}});
  std::vector<std::size_t> inputs;
  for (const DueRequest& request : run.all_due(at_ms(100))) inputs.push_back(request.input);
  EXPECT_EQ(inputs, (std::vector<std::size_t>{2, 3, 0, 1, 2}));
}

TEST(Parts, AreMergedAsIfOneHadMeasuredAll) {
  const auto outcome_of = [](Trial& run, double latency_ms, StatusCode code) {
    for (const DueRequest& request : run.all_due(at_ms(500))) {
      run.generator.complete(
          request.tag,
          {.status = code == StatusCode::ok ? Status() : Status(code, "why"), .correct = true},
          request.intended + from_ms(latency_ms));
    }
    run.generator.end_sending(at_ms(500));
  };
  ModelLoad model = uniform("a", 100);
  model.labelled = true;
  Trial first({model}, {.duration = seconds(1), .part = {.number = 0, .of = 2}});
  Trial second({model}, {.duration = seconds(1), .part = {.number = 1, .of = 2}});
  outcome_of(first, 10, StatusCode::ok);
  outcome_of(second, 60, StatusCode::ok);
  first.generator.merge(second.generator);
  const ModelRow row = first.generator.rows().front();
  EXPECT_EQ(row.offered, 50U);
  EXPECT_EQ(row.served, 50U);
  EXPECT_EQ(row.late, 25U);
  EXPECT_NEAR(*row.p99_ms, 60, 1e-6);
  EXPECT_EQ(row.accuracy, 1.0);
  EXPECT_EQ(first.generator.progress().offered, 50U);

  Trial failing({model}, {.duration = seconds(1), .part = {.number = 1, .of = 2}});
  outcome_of(failing, 10, StatusCode::too_late);
  first.generator.merge(failing.generator);
  EXPECT_EQ(first.generator.rows().front().dropped, 25U);
  EXPECT_EQ(first.generator.rows().front().reasons.at(StatusCode::too_late).count, 25U);
}

TEST(ClosedLoop, KeepsItsConcurrencyInFlight) {
  Trial run({closed("a", 3)}, {.duration = seconds(1)});
  const std::vector<DueRequest> first = run.all_due(at_ms(0));
  ASSERT_EQ(first.size(), 3U);
  EXPECT_EQ(run.generator.next_due(), kNever);
  run.generator.complete(first[1].tag, {}, at_ms(40));
  EXPECT_EQ(run.generator.next_due(), at_ms(40));
  const DueRequest next = *run.generator.next(at_ms(41));
  EXPECT_EQ(next.intended, at_ms(41));  // when it could be sent
  run.generator.complete(first[0].tag, {}, at_ms(1000));
  EXPECT_EQ(run.generator.next_due(), kNever);  // the run is over
}

TEST(ClosedLoop, PausesBeforeItReplacesAFailedRequest) {
  Trial run({closed("a", 1)});
  const DueRequest request = *run.generator.next(at_ms(0));
  run.generator.complete(request.tag, {.status = Status(StatusCode::unavailable, "no gpulet")},
                         at_ms(1));
  EXPECT_EQ(run.generator.next_due(), at_ms(1) + kPauseAfterFailure);
}

TEST(Generator, CountsEachOutcome) {
  Trial run({uniform("a", 1000)});
  std::vector<DueRequest> due = run.all_due(at_ms(10));
  ASSERT_GE(due.size(), 7U);
  const auto refuse = [&](std::size_t i, StatusCode code) {
    run.generator.complete(due[i].tag, {.status = Status(code, "because")}, at_ms(20));
  };
  refuse(0, StatusCode::too_late);
  refuse(1, StatusCode::overloaded);
  refuse(2, StatusCode::invalid);
  refuse(3, StatusCode::timeout);
  run.generator.fail(due[4].tag, Status(StatusCode::unavailable, "lost"), true, at_ms(20));
  run.generator.complete(due[5].tag, {}, at_ms(20));
  run.generator.complete(due[6].tag, {}, at_ms(500));
  const ModelRow row = run.generator.rows().front();
  EXPECT_EQ(row.offered, 7U);
  EXPECT_EQ(row.dropped, 2U);
  EXPECT_EQ(row.errors, 3U);
  EXPECT_EQ(row.served, 2U);
  EXPECT_EQ(row.late, 1U);
  EXPECT_DOUBLE_EQ(row.violation, 6.0 / 7);
  EXPECT_EQ(row.reasons.at(StatusCode::too_late), (ModelRow::Reason{1, "because"}));
}

TEST(Generator, RejectsAReplyWithAnUnknownTag) {
  Trial run({uniform("a", 1000)});
  const DueRequest request = *run.generator.next(at_ms(5));
  EXPECT_FALSE(run.generator.complete(request.tag + 1000, {}, at_ms(6)));
  EXPECT_TRUE(run.generator.complete(request.tag, {}, at_ms(6)));
  EXPECT_FALSE(run.generator.complete(request.tag, {}, at_ms(7)));
  EXPECT_EQ(run.generator.rows().front().served, 1U);
}

TEST(Generator, ReportsTheAccuracyOfLabelledModels) {
  ModelLoad labelled = uniform("a", 1000);
  labelled.labelled = true;
  Trial run({labelled, uniform("b", 1000)});
  const std::vector<DueRequest> due = run.all_due(at_ms(20));
  std::size_t answers = 0;
  for (const DueRequest& request : due) {
    if (request.model == 0)
      run.generator.complete(request.tag, {.correct = answers++ % 4 != 0}, at_ms(21));
    if (request.model == 1) run.generator.complete(request.tag, {}, at_ms(21));
  }
  EXPECT_EQ(answers, 20U);
  EXPECT_DOUBLE_EQ(*run.generator.rows()[0].accuracy, 0.75);
  EXPECT_EQ(run.generator.rows()[1].accuracy, std::nullopt);
}

// For any server, every offered request has one outcome.
RC_GTEST_PROP(Generator, AccountsForEveryRequestOnce, ()) {
  const auto steps = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(0, 40), rc::gen::inRange(0, 12)));
  const auto limit = static_cast<std::uint32_t>(*rc::gen::inRange(1, 30));
  std::vector<ModelLoad> models = {uniform("a", 200), closed("b", 5),
                                   uniform("c", 90, milliseconds(5))};
  models[2].arrivals = Arrivals::poisson;
  Trial run(models, {.duration = seconds(1), .max_outstanding = limit});
  std::deque<std::uint64_t> tags;
  Time now{};
  for (const auto& [advance_ms, action] : steps) {
    now += milliseconds(advance_ms);
    for (const DueRequest& request : run.all_due(now)) tags.push_back(request.tag);
    if (tags.empty()) continue;
    if (action == 10) {
      run.generator.fail(tags.front(), Status(StatusCode::unavailable, "lost"), true, now);
    } else if (action == 11) {
      run.generator.fail(tags.front(), Status(StatusCode::unavailable, "not sent"), false, now);
    } else {
      const auto code = static_cast<StatusCode>(action);
      run.generator.complete(tags.front(),
                             {.status = action == 0 ? Status() : Status(code, "refused")}, now);
    }
    tags.pop_front();
  }
  run.generator.end_sending(now);
  run.generator.fail_all(now);
  RC_ASSERT(run.generator.finished());
  std::uint64_t offered = 0;
  for (const ModelRow& row : run.generator.rows()) {
    RC_ASSERT(row.offered == row.served + row.dropped + row.errors);
    RC_ASSERT(row.late <= row.served);
    RC_ASSERT(row.unsent <= row.errors);
    RC_ASSERT(row.violation >= 0 && row.violation <= 1);
    offered += row.offered;
  }
  RC_ASSERT(offered == run.records.size());
  RC_ASSERT(offered == run.generator.progress().offered);
}

std::vector<double> gaps_s(ArrivalProcess process, int count) {
  std::vector<double> gaps;
  double last = 0;
  for (int i = 0; i < count; ++i) {
    const double at = to_seconds(process.next().time_since_epoch());
    gaps.push_back(at - last);
    last = at;
  }
  return gaps;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const double mean_a = mean(a);
  const double mean_b = mean(b);
  double product = 0;
  double square_a = 0;
  double square_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += (a[i] - mean_a) * (b[i] - mean_b);
    square_a += (a[i] - mean_a) * (a[i] - mean_a);
    square_b += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return product / std::sqrt(square_a * square_b);
}

TEST(PoissonArrivals, HaveRateAndVarianceOfAPoissonProcess) {
  const std::vector<double> gaps = gaps_s({Arrivals::poisson, 100, 7}, 200000);
  const double mean_gap = mean(gaps);
  EXPECT_NEAR(mean_gap, 0.01, 0.01 * 0.01);
  double variance = 0;
  std::size_t above_mean = 0;
  for (const double gap : gaps) {
    variance += (gap - mean_gap) * (gap - mean_gap) / static_cast<double>(gaps.size());
    if (gap > 0.01) ++above_mean;
  }
  EXPECT_NEAR(std::sqrt(variance) / mean_gap, 1, 0.02);
  EXPECT_NEAR(static_cast<double>(above_mean) / static_cast<double>(gaps.size()), std::exp(-1.0),
              0.01);
  EXPECT_NEAR(correlation({gaps.begin(), gaps.end() - 1}, {gaps.begin() + 1, gaps.end()}), 0, 0.01);
}

TEST(UniformArrivals, KeepTheirSpacingWithoutDrift) {
  ArrivalProcess process(Arrivals::uniform, 3, 5);
  const Time first = process.next();
  EXPECT_LT(to_seconds(first.time_since_epoch()), 1.0 / 3);
  Time last = first;
  for (int i = 0; i < 300000; ++i) last = process.next();
  EXPECT_NEAR(to_seconds(last - first), 100000, 1e-6);
}

TEST(ArrivalProcess, IsTheSameForTheSameSeedOnly) {
  for (const Arrivals kind : {Arrivals::poisson, Arrivals::uniform}) {
    EXPECT_EQ(gaps_s({kind, 50, 3}, 100), gaps_s({kind, 50, 3}, 100));
    EXPECT_NE(gaps_s({kind, 50, 3}, 100), gaps_s({kind, 50, 4}, 100));
  }
}

TEST(ArrivalProcess, StreamsOfModelsAndOfSeedsAreIndependent) {
  const auto gaps = [](std::uint64_t seed, std::string_view model) {
    return gaps_s({Arrivals::poisson, 50, stream_seed(seed, model)}, 50000);
  };
  EXPECT_NEAR(correlation(gaps(1, "lenet"), gaps(1, "resnet50")), 0, 0.02);
  EXPECT_NEAR(correlation(gaps(1, "lenet"), gaps(2, "lenet")), 0, 0.02);
  EXPECT_NEAR(correlation(gaps(1, "vgg16"), gaps(1, "vgg19")), 0, 0.02);
}

TEST(ArrivalProcess, RejectsInvalidSchedules) {
  EXPECT_THROW(ArrivalProcess(Arrivals::closed, 1, 1), std::invalid_argument);
  EXPECT_THROW(ArrivalProcess(Arrivals::poisson, 0, 1), std::invalid_argument);
  EXPECT_THROW(ArrivalProcess(Arrivals::poisson, std::numeric_limits<double>::quiet_NaN(), 1),
               std::invalid_argument);
}

// ---- traces

std::shared_ptr<const config::Trace> trace_of(const std::string& rows) {
  return std::make_shared<const config::Trace>(config::parse_trace(rows, "trace.csv").value());
}

std::vector<Time> traced(const std::shared_ptr<const config::Trace>& trace, const ModelLoad& model,
                         const Part& part = {}) {
  Trial run({model}, {.duration = seconds(10), .seed = 3, .part = part, .trace = trace});
  std::vector<Time> times;
  for (const DueRequest& request : run.all_due(at_ms(20000))) times.push_back(request.intended);
  return times;
}

// The simulator sends these.
TEST(TracedLoad, SendsTheArrivalsOfTheTrace) {
  const auto trace = trace_of("time_s,model,rate\n2,a,80\n6,a,0\n8,a,30\n");
  config::TraceArrivals expected(*trace, "a", 15, stream_seed(3, "a"));
  std::vector<Time> times;
  for (double at_s = expected.next_s(); at_s < 10; at_s = expected.next_s())
    times.push_back(Time(from_seconds(at_s)));
  ModelLoad model = uniform("a", 15);
  model.arrivals = Arrivals::poisson;
  EXPECT_EQ(traced(trace, model), times);
  EXPECT_EQ(traced(trace, uniform("a", 15)), times) << "the trace replaces the kind of arrivals";
}

TEST(TracedLoad, PartsOfGivenArrivalsTakeTurns) {
  const auto trace = trace_of("time_s,model,count\n1,a,3\n2,a,1\n4,a,3\n12,a,5\n");
  const ModelLoad model = uniform("a", 0);
  const std::vector<Time> all = traced(trace, model);
  EXPECT_EQ(all.size(), 7U) << "arrivals after the end are not sent";
  std::vector<Time> of_parts;
  for (const std::uint32_t number : {0U, 1U, 2U}) {
    const std::vector<Time> part = traced(trace, model, {.number = number, .of = 3});
    EXPECT_NEAR(static_cast<double>(part.size()), 7.0 / 3, 1);
    of_parts.insert(of_parts.end(), part.begin(), part.end());
  }
  std::sort(of_parts.begin(), of_parts.end());
  EXPECT_EQ(of_parts, all);
}

TEST(TracedLoad, PartsOfRandomArrivalsHaveTheRateOfTheWhole) {
  const auto trace = trace_of("time_s,model,rate\n5,a,300\n");
  std::size_t first = 0;
  std::size_t second = 0;
  for (const std::uint32_t number : {0U, 1U, 2U}) {
    for (const Time time : traced(trace, uniform("a", 100), {.number = number, .of = 3}))
      ++(time < at_ms(5000) ? first : second);
  }
  EXPECT_NEAR(static_cast<double>(first), 500, 110);
  EXPECT_NEAR(static_cast<double>(second), 1500, 190);
}

TEST(TracedLoad, WithoutArrivalsEndsAtOnce) {
  const auto trace = trace_of("time_s,model\n1,other\n");
  Trial run({uniform("a", 50)}, {.duration = seconds(10), .trace = trace});
  EXPECT_TRUE(run.generator.finished());
}

RC_GTEST_PROP(Percentile, IsTheSmallestSampleThatEnoughSamplesDoNotExceed, ()) {
  const auto values = *rc::gen::nonEmpty<std::vector<int>>();
  const auto percent = *rc::gen::inRange(0, 101);
  const double found = *percentile({values.begin(), values.end()}, percent);
  const auto not_above =
      std::count_if(values.begin(), values.end(), [&](int value) { return value <= found; });
  const auto below =
      std::count_if(values.begin(), values.end(), [&](int value) { return value < found; });
  const auto count = static_cast<long>(values.size());
  RC_ASSERT(std::count(values.begin(), values.end(), static_cast<int>(found)) > 0);
  RC_ASSERT(100 * not_above >= percent * count);
  RC_ASSERT(below == 0 || 100 * below < percent * count);
}

}  // namespace
}  // namespace gpulet::load
