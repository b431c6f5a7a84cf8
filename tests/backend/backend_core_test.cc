#include "gpulet/node/backend_core.h"

#include <gtest/gtest.h>

#include "tests/backend/core_bench.h"

namespace gpulet::node {
namespace {

using enum GpuletPhase;
using std::chrono::milliseconds;
using std::chrono::seconds;

const Status kKilled{StatusCode::unavailable, "killed by signal 9"};

// ---- the life of a gpulet

TEST(GpuletLife, GoesFromRequestedToReady) {
  CoreBench bench;
  bench.connect();
  const auto asked = bench.ask(1);
  ASSERT_EQ(all<StartGpulet>(asked).size(), 1U);
  const auto start = all<StartGpulet>(asked)[0];
  EXPECT_EQ(start.size, Share{40});
  EXPECT_EQ(start.models.models.at(0).file, "/store/a.pt");
  EXPECT_EQ(start.input_capacity, kInputBytes * kMaxBatch);
  EXPECT_EQ(bench.phase(1), starting);
  bench.on(ProxyStarted{{1}});
  EXPECT_EQ(bench.phase(1), loading);
  EXPECT_FALSE(bench.takes_batches(1));
  EXPECT_EQ(all<ActivateShare>(bench.on(ProxyLoaded{{1}, {}})).size(), 1U);
  EXPECT_EQ(bench.phase(1), loading) << "the share is not in force yet";
  const auto reports = sent<GpuletReport>(bench.on(ShareActive{{1}, {}}));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].state, GpuletState::ready);
  EXPECT_TRUE(bench.takes_batches(1));
}

TEST(GpuletLife, RequestsEachMissingFileOnceAndStartsWithAllFiles) {
  CoreBench bench;
  bench.connect();
  auto effects = bench.command(GpuletRequested{create(1, {"a", "b"}), {{"sha-a", "/store/a.pt"}}});
  ASSERT_EQ(sent<ModelPieceRequest>(effects).size(), 1U);
  EXPECT_EQ(sent<ModelPieceRequest>(effects)[0].sha256, "sha-b");
  EXPECT_EQ(bench.phase(1), fetching);
  effects = bench.command(GpuletRequested{create(2, {"b", "c"}), {}});
  ASSERT_EQ(sent<ModelPieceRequest>(effects).size(), 1U);
  EXPECT_EQ(sent<ModelPieceRequest>(effects)[0].sha256, "sha-c");
  EXPECT_EQ(all<StartGpulet>(bench.on(ModelStored{"sha-b", "/store/b.pt"})).size(), 1U);
  EXPECT_EQ(bench.phase(1), starting);
  EXPECT_EQ(bench.phase(2), fetching);
  EXPECT_EQ(all<StartGpulet>(bench.on(ModelStored{"sha-c", "/store/c.pt"})).size(), 1U);
}

TEST(GpuletLife, RequestsALargeFileAtTheSpeedOfTheDisk) {
  CoreBench bench;
  bench.connect();
  bench.command(GpuletRequested{create(1, {"b"}), {}});
  constexpr std::uint64_t kPieces = 30;
  constexpr std::uint64_t kTotal = kPieces * kModelPieceBytes - 5;
  std::uint64_t asked = 1;
  for (std::uint64_t stored = 1; stored < kPieces; ++stored) {
    const auto effects = bench.on(ModelProgress{"sha-b", stored * kModelPieceBytes, kTotal});
    for (const auto& wanted : sent<ModelPieceRequest>(effects)) {
      EXPECT_EQ(wanted.sha256, "sha-b");
      EXPECT_EQ(wanted.offset, asked++ * kModelPieceBytes) << "in order, each once";
    }
    EXPECT_EQ(asked, std::min(kPieces, stored + 8)) << "and bounded";
  }
  EXPECT_TRUE(sent<ModelPieceRequest>(bench.on(ModelProgress{"sha-x", 1, 2})).empty())
      << "nobody's";
}

TEST(GpuletLife, RequestsOnlyAFewFilesAtATime) {
  CoreBench bench;
  bench.connect();
  const auto first = bench.command(GpuletRequested{create(1, {"a", "b", "c", "d", "e", "f"}), {}});
  EXPECT_EQ(sent<ModelPieceRequest>(first).size(), 4U);
  const auto next = sent<ModelPieceRequest>(bench.on(ModelStored{"sha-b", "/store/b.pt"}));
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].sha256, "sha-e");
  for (const char* name : {"a", "c", "d", "e"})
    bench.on(ModelStored{std::string("sha-") + name, std::string("/store/") + name});
  EXPECT_EQ(all<StartGpulet>(bench.on(ModelStored{"sha-f", "/store/f"})).size(), 1U);
}

TEST(GpuletLife, PassesTheVariantOfTheLastLoadToTheProcess) {
  CoreBench bench;
  bench.connect();
  const auto form_for = [&](std::uint64_t gpulet) {
    return all<StartGpulet>(bench.ask(gpulet)).at(0).models.models.at(0).variant;
  };
  EXPECT_EQ(form_for(1), 0U);
  bench.on(ProxyStarted{{1}});
  EXPECT_EQ(form_for(2), 0U);
  bench.on(ProxyLoaded{{1}, {}, {2}});
  EXPECT_EQ(form_for(3), 2U);
}

TEST(GpuletLife, ItsProcessLearnsThePlannedBatchesAndTellsHowLoadingWent) {
  CoreBench bench;
  bench.connect();
  CreateGpulet asked = create(1, {"a"});
  asked.models[0].planned_batches = {3, 5};
  const auto start = bench.command(GpuletRequested{asked, {{"sha-a", "/store/a.pt"}}});
  EXPECT_EQ(all<StartGpulet>(start).at(0).models.models.at(0).planned_batches,
            (std::vector<std::uint32_t>{3, 5}));
  bench.on(ProxyStarted{{1}});
  ProxyLoaded loaded{{1}, {}};
  loaded.load_stages = {milliseconds(1), milliseconds(2), milliseconds(3), milliseconds(4)};
  loaded.condition = {.sms = 24, .shared_sms = 8, .sizes_to_capture = 5};
  bench.on(loaded);
  const auto reports = sent<GpuletReport>(bench.on(ShareActive{{1}, {}}));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].load_stages, loaded.load_stages);
  EXPECT_EQ(reports[0].condition, loaded.condition);
}

TEST(GpuletLife, ReportsAChangedConditionOfItsProcessAtMostOnceASecond) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  const auto after_batch = [&](std::uint64_t id, std::optional<std::uint32_t> shared_sms) {
    bench.arrive(batch(id, 1));
    BatchRan ran{{id}, {}, 8, Duration(100), Duration(200)};
    if (shared_sms)
      ran.condition = partition::ProcessCondition{.sms = 24, .shared_sms = *shared_sms};
    return sent<GpuletReport>(bench.on(BatchCompleted{{1}, ran, Bytes()}));
  };
  EXPECT_TRUE(after_batch(1, std::nullopt).empty());
  const auto first = after_batch(2, 8);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].state, GpuletState::ready);
  EXPECT_EQ(first[0].condition.shared_sms, 8U);
  EXPECT_TRUE(after_batch(3, 8).empty()) << "unchanged";
  EXPECT_TRUE(after_batch(4, 0).empty()) << "within a second";
  bench.pass(seconds(1));
  EXPECT_EQ(after_batch(5, 0).size(), 1U);
}

TEST(GpuletLife, RequestsMissingFilesFromTheNextFrontend) {
  CoreBench bench;
  bench.connect();
  bench.command(GpuletRequested{create(1, {"b"}), {}});
  bench.disconnect();
  EXPECT_EQ(sent<ModelPieceRequest>(bench.connect()).size(), 1U);
}

TEST(GpuletLife, FailsIfTheFrontendLacksAFile) {
  CoreBench bench;
  bench.connect();
  bench.command(GpuletRequested{create(1, {"b"}), {}});
  const auto reports =
      sent<GpuletReport>(bench.on(ModelFailed{"sha-b", {StatusCode::not_found, "no file"}}));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].state, GpuletState::failed);
  EXPECT_EQ(reports[0].status.code(), StatusCode::not_found);
  EXPECT_EQ(bench.phase(1), failed);
  EXPECT_EQ(sent<GpuletReport>(bench.command(RetireGpulet{{1}})).at(0).state, GpuletState::gone);
  EXPECT_EQ(sent<ModelPieceRequest>(bench.command(GpuletRequested{create(2, {"b"}), {}})).size(),
            1U)
      << "asked anew";
}

// ---- causes of failures

TEST(FailureCauses, AreReportedAsTheyWereFound) {
  CoreBench bench;
  bench.connect();
  bench.command(GpuletRequested{create(1, {"b"}), {}});
  const auto reports = sent<GpuletReport>(bench.on(ModelFailed{
      "sha-b", {StatusCode::unavailable, "no space left on device"}, FailureCause::node_disk}));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].cause, FailureCause::node_disk);
  EXPECT_EQ(reports[0].failed_model, "b");
}

TEST(FailureCauses, OfAFailedStartComeFromTheShell) {
  CoreBench bench;
  bench.connect();
  bench.ask(1);
  const auto reports = sent<GpuletReport>(
      bench.on(ProxyEnded{{1}, kKilled, partition::DeviceHealth::works, FailureCause::node_spawn}));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].cause, FailureCause::node_spawn);
}

TEST(FailureCauses, OfAFailedLoadComeFromTheProxy) {
  CoreBench bench;
  bench.connect();
  bench.ask(1);
  bench.on(ProxyStarted{{1}});
  bench.on(ProxyLoaded{{1},
                       {StatusCode::invalid, "no TorchScript"},
                       {},
                       {},
                       partition::DeviceHealth::works,
                       FailureCause::model_file,
                       "a"});
  const auto reports = sent<GpuletReport>(bench.end(1));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].state, GpuletState::failed);
  EXPECT_EQ(reports[0].cause, FailureCause::model_file);
  EXPECT_EQ(reports[0].failed_model, "a");
}

TEST(FailureCauses, OfAProcessThatEndsByItselfIsACrash) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  const auto reports = sent<GpuletReport>(bench.end(1));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].cause, FailureCause::model_crash);
  bench.pass(milliseconds(100));
  bench.on(TimePassed{});
  bench.on(ProxyStarted{{1}});
  bench.on(ProxyLoaded{{1}, {}});
  const auto ready_again = sent<GpuletReport>(bench.on(ShareActive{{1}, {}}));
  ASSERT_EQ(ready_again.size(), 1U);
  EXPECT_EQ(ready_again[0].cause, FailureCause::unknown) << "it serves again";
}

TEST(FailureCauses, OfALostDeviceIsTheDevice) {
  CoreBench bench;
  bench.connect();
  bench.command(GpuletRequested{create(1, {"b"}), {}});
  const auto reports = sent<GpuletReport>(
      bench.on(DeviceHealthReported{0, {StatusCode::unavailable, "fell off the bus"}}));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].cause, FailureCause::device);
}

TEST(GpuletLife, RestartsADeadProcessAfterAGrowingDelay) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  auto delay = milliseconds(100);
  for (int death = 0; death < 4; ++death, delay *= 2) {
    const auto reports = sent<GpuletReport>(bench.end(1));
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_EQ(reports[0].state, GpuletState::restarting);
    EXPECT_EQ(reports[0].status, kKilled);
    bench.pass(delay - milliseconds(1));
    EXPECT_TRUE(all<StartGpulet>(bench.on(TimePassed{})).empty()) << "too early, death " << death;
    bench.pass(milliseconds(1));
    EXPECT_EQ(all<StartGpulet>(bench.on(TimePassed{})).size(), 1U) << "death " << death;
    bench.load(1);
    EXPECT_EQ(bench.phase(1), ready);
  }
}

TEST(GpuletLife, ResetsTheDelayAfterAStableTime) {
  CoreBench bench;
  bench.make_ready(1);
  for (int death = 0; death < 5; ++death) {
    bench.pass(seconds(60));
    bench.end(1);
    bench.pass(milliseconds(100));
    EXPECT_EQ(all<StartGpulet>(bench.on(TimePassed{})).size(), 1U);
    bench.load(1);
  }
}

TEST(GpuletLife, GivesUpAfterThreeFailuresOfLoading) {
  CoreBench bench;
  bench.connect();
  bench.ask(1);
  for (int attempt = 1; attempt <= 3; ++attempt) {
    bench.on(ProxyStarted{{1}});
    const auto killed =
        all<KillProxy>(bench.on(ProxyLoaded{{1}, {StatusCode::internal, "out of memory"}}));
    ASSERT_EQ(killed.size(), 1U);
    const auto reports = sent<GpuletReport>(bench.end(1));
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_EQ(reports[0].status.message(), "out of memory") << "not how the killing went";
    EXPECT_EQ(reports[0].state, attempt < 3 ? GpuletState::restarting : GpuletState::failed);
    if (attempt < 3) {
      bench.pass(milliseconds(200));
      EXPECT_EQ(all<StartGpulet>(bench.on(TimePassed{})).size(), 1U);
    }
  }
  EXPECT_EQ(bench.phase(1), failed);
}

TEST(GpuletLife, GivesUpAtOnceIfARetryCannotHelp) {
  CoreBench bench;
  bench.ask(1);
  EXPECT_EQ(bench.phase(1), starting);
  bench.end(1, {StatusCode::invalid, "a share that the device cannot give"});
  EXPECT_EQ(bench.phase(1), failed);
}

TEST(GpuletLife, KillsAProcessWhoseShareCannotBeActivated) {
  CoreBench bench;
  bench.ask(1);
  bench.on(ProxyStarted{{1}});
  bench.on(ProxyLoaded{{1}, {}});
  EXPECT_EQ(all<KillProxy>(bench.on(ShareActive{{1}, {StatusCode::unavailable, "quota"}})).size(),
            1U);
  bench.end(1);
  EXPECT_EQ(bench.phase(1), restarting);
}

TEST(GpuletLife, KillsAProcessThatDoesNotLoadInTime) {
  CoreBench bench;
  bench.ask(1);
  bench.on(ProxyStarted{{1}});
  const auto killed = all<KillProxy>(bench.wake());
  ASSERT_EQ(killed.size(), 1U);
  EXPECT_EQ(killed[0].reason.code(), StatusCode::timeout);
  bench.disconnect();
  EXPECT_EQ(bench.core().next_wakeup(), kNever) << "it is killed once";
}

TEST(GpuletLife, FailsAtOnceIfAModelDoesNotLoadInTime) {
  CoreBench bench;
  bench.ask(1);
  bench.on(ProxyStarted{{1}});
  const Time began = bench.now();
  ASSERT_EQ(all<KillProxy>(bench.wake()).size(), 1U);
  EXPECT_EQ(bench.now() - began, BackendCoreOptions().load_timeout);
  const auto reports = sent<GpuletReport>(bench.end(1));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].state, GpuletState::failed) << "another attempt would take as long";
  EXPECT_EQ(reports[0].cause, FailureCause::hung);
}

TEST(GpuletLife, LargeFilesHaveMoreTimeToLoad) {
  CoreBench bench;
  bench.command(GpuletRequested{
      create(1, {"a"}), {{"sha-a", "/store/a.pt"}}, {{"sha-a", std::uint64_t{4} << 30U}}});
  bench.on(ProxyStarted{{1}});
  const Time began = bench.now();
  while (all<KillProxy>(bench.wake()).empty() && bench.now() - began < std::chrono::hours(1)) {
  }
  EXPECT_GT(bench.now() - began, 2 * BackendCoreOptions().load_timeout);
  EXPECT_LT(bench.now() - began, std::chrono::minutes(10));
}

TEST(GpuletLife, FinishesItsBatchesWhenRetired) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  bench.arrive(batch(7, 1));
  const auto retired = bench.command(RetireGpulet{{1}});
  EXPECT_EQ(all<FinishProxy>(retired).size(), 1U);
  EXPECT_EQ(bench.phase(1), retiring);
  EXPECT_TRUE(all<FinishProxy>(bench.command(RetireGpulet{{1}})).empty()) << "once is enough";
  EXPECT_EQ(sent<BatchResult>(bench.arrive(batch(8, 1))).at(0).status.code(),
            StatusCode::unavailable);
  EXPECT_TRUE(sent<BatchResult>(bench.ran(1, 7)).at(0).status.ok());
  const auto reports = sent<GpuletReport>(bench.end(1, {}));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].state, GpuletState::gone);
  EXPECT_EQ(bench.phase(1), std::nullopt);
}

TEST(GpuletLife, CanBeRetiredInEveryPhase) {
  using Reach = void (*)(CoreBench&);
  const std::vector<std::pair<GpuletPhase, Reach>> ways{
      {fetching,
       [](CoreBench& bench) {
         bench.command(GpuletRequested{create(1, {"b"}), {}});
       }},
      {starting, [](CoreBench& bench) { bench.ask(1); }},
      {loading,
       [](CoreBench& bench) {
         bench.ask(1);
         bench.on(ProxyStarted{{1}});
       }},
      {ready, [](CoreBench& bench) { bench.make_ready(1); }},
      {restarting,
       [](CoreBench& bench) {
         bench.make_ready(1);
         bench.end(1);
       }},
      {failed,
       [](CoreBench& bench) {
         bench.ask(1);
         bench.end(1, {StatusCode::invalid, "no"});
       }},
  };
  for (const auto& [phase, reach] : ways) {
    CoreBench bench;
    bench.connect();
    reach(bench);
    ASSERT_EQ(bench.phase(1), phase);
    auto effects = bench.command(RetireGpulet{{1}});
    if (has_process(phase)) {
      const bool serves = phase == ready;
      EXPECT_EQ(all<FinishProxy>(effects).size(), serves ? 1U : 0U) << to_string(phase);
      EXPECT_EQ(all<KillProxy>(effects).size(), serves ? 0U : 1U) << to_string(phase);
      effects = bench.end(1, {});
    }
    EXPECT_EQ(sent<GpuletReport>(effects).back().state, GpuletState::gone) << to_string(phase);
    EXPECT_EQ(bench.phase(1), std::nullopt) << to_string(phase);
  }
}

TEST(GpuletLife, RejectsRequestsThatNoDeviceSupports) {
  CoreBench bench;
  bench.connect();
  const auto refused = [&](CreateGpulet asked) {
    const auto reports = sent<GpuletReport>(bench.command(GpuletRequested{std::move(asked), {}}));
    return reports.size() == 1 && reports[0].state == GpuletState::failed &&
           reports[0].status.code() == StatusCode::invalid;
  };
  EXPECT_TRUE(refused(create(1, {"a"}, 4))) << "no such device";
  EXPECT_TRUE(refused(create(1, {}))) << "no models";
  CreateGpulet in_instance = create(1, {"a"});
  in_instance.instance = partition::MigInstance{3, 4};
  EXPECT_TRUE(refused(in_instance)) << "the device is not divided by MIG";
  EXPECT_TRUE(refused(create(1, {"a"}, 2))) << "a simulated device without a profile";
  EXPECT_EQ(bench.phase(1), std::nullopt);
  EXPECT_EQ(sent<GpuletReport>(bench.command(RetireGpulet{{1}})).at(0).state, GpuletState::gone);
}

TEST(GpuletLife, HasAnInstanceOnAMigDevice) {
  BackendCoreOptions options;
  DeviceOffer divided = device(0, "mig");
  divided.device.mig = partition::MigGeometry::of("a100-80").value();
  options.devices = {divided};
  CoreBench bench(options);
  bench.connect();
  const auto refused = sent<GpuletReport>(bench.command(GpuletRequested{create(1, {"a"}), {}}));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].status.code(), StatusCode::invalid);
  CreateGpulet asked = create(2, {"a"});
  asked.instance = partition::MigInstance{3, 4};
  const auto effects = bench.command(GpuletRequested{asked, {{"sha-a", "/store/a"}}});
  EXPECT_EQ(sent<GpuletReport>(effects).at(0).instance, asked.instance);
  ASSERT_EQ(all<StartGpulet>(effects).size(), 1U);
  EXPECT_EQ(all<StartGpulet>(effects)[0].instance, asked.instance);
}

TEST(GpuletLife, AnswersARepeatedRequestWithItsState) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  const auto effects = bench.ask(1);
  EXPECT_TRUE(all<StartGpulet>(effects).empty());
  EXPECT_EQ(sent<GpuletReport>(effects).at(0).state, GpuletState::ready);
}

// ---- batches

TEST(Batches, GoToTheProxyAndTheirResultsToTheFrontend) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  const Time arrived = bench.now();
  bench.pass(milliseconds(3));
  const auto runs = all<RunOnProxy>(bench.command(BatchArrived{batch(7, 1), arrived, true}));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].batch.id, BatchId{7});
  EXPECT_EQ(runs[0].batch.count, 2U);
  EXPECT_EQ(runs[0].batch.start_within, milliseconds(47)) << "arriving took 3 of its 50 ms";
  const auto results = sent<BatchResult>(bench.ran(1, 7));
  ASSERT_EQ(results.size(), 1U);
  EXPECT_TRUE(results[0].status.ok());
  EXPECT_EQ(results[0].queued, milliseconds(3) + Duration(100));
  EXPECT_EQ(results[0].received, milliseconds(3));
  EXPECT_EQ(results[0].executed, Duration(200));
}

TEST(Batches, WithoutBytesAreMadeByTheProxy) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  Batch asked = batch(7, 1);
  EXPECT_EQ(bench.core().input_bytes(asked), 2 * kInputBytes);
  EXPECT_EQ(bench.core().input_bytes(batch(7, 1, "a", kMaxBatch + 1)), 0U);
  EXPECT_EQ(bench.core().input_bytes(batch(7, 1, "b")), 0U);
  EXPECT_EQ(bench.core().input_bytes(batch(7, 9)), 0U);
  asked.synthetic = true;
  const auto runs = all<RunOnProxy>(bench.arrive(asked));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_TRUE(runs[0].batch.synthetic);
  EXPECT_EQ(runs[0].batch.input_bytes, 2 * kInputBytes);
  Batch without_slot = batch(8, 1);
  without_slot.synthetic = true;
  without_slot.inputs = {Bytes()};
  const auto results = sent<BatchResult>(bench.arrive(without_slot, false));
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].status.code(), StatusCode::overloaded);
}

TEST(Batches, AreRejectedWithACode) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  bench.ask(2);
  const auto code = [&](Batch asked, bool placed = true) {
    const auto effects = bench.arrive(std::move(asked), placed);
    EXPECT_TRUE(all<RunOnProxy>(effects).empty());
    const auto results = sent<BatchResult>(effects);
    return results.size() == 1 ? results[0].status.code() : StatusCode::ok;
  };
  EXPECT_EQ(code(batch(1, 9)), StatusCode::unavailable) << "unknown gpulet";
  EXPECT_EQ(code(batch(2, 2)), StatusCode::unavailable) << "not ready";
  EXPECT_EQ(code(batch(3, 1, "b")), StatusCode::not_found) << "unknown model";
  EXPECT_EQ(code(batch(4, 1, "a", kMaxBatch + 1)), StatusCode::invalid) << "too many";
  EXPECT_EQ(code(batch(5, 1, "a", 0)), StatusCode::invalid) << "empty";
  auto short_one = batch(6, 1);
  short_one.inputs = {Bytes::own(std::vector<std::byte>(1))};
  EXPECT_EQ(code(short_one), StatusCode::invalid) << "wrong size";
  EXPECT_EQ(code(batch(7, 1), false), StatusCode::overloaded) << "no slot";
  auto late = batch(8, 1);
  late.start_within = Duration(0);
  EXPECT_EQ(code(late), StatusCode::too_late);
}

TEST(Batches, OfADeadProcessAreAnsweredUnavailableOnce) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  bench.make_ready(2);
  bench.arrive(batch(7, 1));
  bench.arrive(batch(8, 1));
  bench.arrive(batch(9, 2));
  const auto results = sent<BatchResult>(bench.end(1));
  ASSERT_EQ(results.size(), 2U);
  for (const auto& result : results) EXPECT_EQ(result.status.code(), StatusCode::unavailable);
  EXPECT_TRUE(sent<BatchResult>(bench.end(1)).empty());
  EXPECT_EQ(sent<BatchResult>(bench.ran(2, 9)).size(), 1U);
}

TEST(Batches, ThatHangEndTheirProcess) {
  CoreBench bench;
  bench.make_ready(1);
  bench.connect();
  bench.arrive(batch(7, 1));
  BackendEffects effects;
  const Time began = bench.now();
  while (all<KillProxy>(effects).empty() && bench.now() - began < std::chrono::minutes(5)) {
    effects = bench.wake();
    bench.command(Heartbeat{});
  }
  ASSERT_EQ(all<KillProxy>(effects).size(), 1U);
  EXPECT_EQ(bench.now() - began, BackendCoreOptions().hang_timeout);
  const auto results = sent<BatchResult>(effects);
  ASSERT_EQ(results.size(), 1U) << "at once: it may take a while to end";
  EXPECT_EQ(results[0].status.code(), StatusCode::unavailable);
  EXPECT_EQ(results[0].cause, FailureCause::hung);
  const auto reports = sent<GpuletReport>(effects);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].state, GpuletState::restarting);
  EXPECT_EQ(reports[0].cause, FailureCause::hung);
  EXPECT_EQ(sent<BatchResult>(bench.arrive(batch(8, 1))).at(0).status.code(),
            StatusCode::unavailable);
  EXPECT_TRUE(sent<BatchResult>(bench.end(1)).empty());
  bench.pass(milliseconds(100));
  EXPECT_EQ(all<StartGpulet>(bench.on(TimePassed{})).size(), 1U) << "and it is started anew";
}

// Wakes the core until it kills the process.
Duration hangs_after(CoreBench& bench, Batch held) {
  bench.make_ready(1);
  bench.arrive(std::move(held));
  const Time began = bench.now();
  while (all<KillProxy>(bench.wake()).empty() && bench.now() - began < std::chrono::hours(1)) {
  }
  return bench.now() - began;
}

TEST(Batches, ThatAreExpectedToTakeLongMayHangLonger) {
  CoreBench bench;
  Batch held = batch(7, 1);
  held.expected_duration = seconds(2);
  held.start_within = seconds(600);  // a client's long timeout does not hide a hung process
  EXPECT_EQ(hangs_after(bench, std::move(held)), seconds(10));
}

TEST(Batches, DoNotHangWhileOthersBeforeThemAreAnswered) {
  CoreBench bench;
  bench.make_ready(1);
  bench.connect();
  bench.arrive(batch(7, 1));
  bench.arrive(batch(8, 1));
  bench.pass(seconds(2));
  bench.ran(1, 7);
  bench.pass(seconds(2));
  EXPECT_TRUE(all<KillProxy>(bench.on(TimePassed{})).empty());
  bench.pass(seconds(1));
  EXPECT_EQ(all<KillProxy>(bench.on(TimePassed{})).size(), 1U);
}

TEST(Batches, DoNotHangWhileTheBackendIsSuspended) {
  CoreBench bench;
  bench.make_ready(1);
  bench.arrive(batch(7, 1));
  bench.pass(seconds(60));  // the process was stopped or the machine slept
  EXPECT_TRUE(all<KillProxy>(bench.on(TimePassed{})).empty());
  EXPECT_EQ(all<KillProxy>(bench.wake()).size(), 1U) << "the proxy had as long again";
}

TEST(Batches, ReportHowTheProcessEnded) {
  const auto results_of = [](ProcessEnd end) {
    CoreBench bench;
    bench.make_ready(1);
    bench.connect();
    bench.arrive(batch(7, 1));
    ProxyEnded ended{{1}, {StatusCode::unavailable, "as the test says"}};
    ended.end = end;
    return sent<BatchResult>(bench.on(std::move(ended)));
  };
  const auto crashed = results_of({11, 0});
  ASSERT_EQ(crashed.size(), 1U);
  EXPECT_EQ(crashed[0].cause, FailureCause::model_crash);
  EXPECT_EQ(crashed[0].end, (ProcessEnd{11, 0}));
  EXPECT_EQ(results_of({0, 1}).at(0).cause, FailureCause::model_crash);
  EXPECT_EQ(results_of({9, 0}).at(0).cause, FailureCause::unknown) << "somebody killed it";
}

// If several workers of a process had batches, any of them may have crashed it.
TEST(Batches, OfWorkersAreBlamedOnlyIfOneWorkerHadBatches) {
  BackendCoreOptions options;
  options.devices = {device(0, "green")};
  options.devices[0].traits.change = partition::ChangeOfSize::in_place;
  for (const bool both : {false, true}) {
    CoreBench bench(options);
    bench.make_ready(1);
    bench.make_ready(2);
    bench.connect();
    bench.arrive(batch(7, 1));
    if (both) bench.arrive(batch(8, 2));
    std::vector<BatchResult> results;
    for (const std::uint64_t gpulet : {1U, 2U}) {
      ProxyEnded ended{{gpulet}, {StatusCode::unavailable, "as the test says"}};
      ended.device = partition::DeviceHealth::not_ready;
      ended.end.signal = 11;
      for (const auto& one : sent<BatchResult>(bench.on(std::move(ended)))) results.push_back(one);
    }
    ASSERT_EQ(results.size(), both ? 2U : 1U);
    for (const auto& one : results)
      EXPECT_EQ(one.cause, both ? FailureCause::unknown : FailureCause::model_crash);
  }
}

TEST(Batches, AnUnexpectedAnswerEndsTheProcess) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  const auto effects = bench.ran(1, 7);
  EXPECT_TRUE(sent<BatchResult>(effects).empty());
  EXPECT_EQ(all<KillProxy>(effects).size(), 1U);
}

// ---- the frontend

TEST(FrontendLink, GetsAllGpuletsWhenItReturns) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  bench.ask(2);
  bench.make_ready(3);
  bench.command(RetireGpulet{{3}});
  bench.disconnect();
  EXPECT_EQ(bench.phase(1), ready);
  bench.load(2);
  EXPECT_EQ(bench.phase(2), ready) << "life goes on without a frontend";
  const auto hellos = sent<Hello>(bench.connect());
  ASSERT_EQ(hellos.size(), 1U);
  EXPECT_EQ(hellos[0].node, "n0");
  EXPECT_EQ(hellos[0].devices.size(), 4U);
  ASSERT_EQ(hellos[0].gpulets.size(), 2U) << "not of the one that is ending";
  EXPECT_EQ(hellos[0].gpulets[1].id, GpuletId{2});
  EXPECT_EQ(hellos[0].gpulets[1].state, GpuletState::ready);
}

TEST(FrontendLink, ResultsOfAnEarlierConnectionAreDropped) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  bench.arrive(batch(7, 1));
  bench.arrive(batch(8, 1));
  bench.disconnect();
  EXPECT_TRUE(bench.ran(1, 7).empty());
  bench.connect();
  EXPECT_TRUE(sent<BatchResult>(bench.ran(1, 8)).empty()) << "nobody there asked for it";
  bench.arrive(batch(8, 1));
  EXPECT_EQ(sent<BatchResult>(bench.ran(1, 8)).size(), 1U);
}

TEST(FrontendLink, HeartbeatsReportThePowerOfDevices) {
  CoreBench bench;
  bench.connect();
  bench.on(DeviceHealthReported{0, {}, {0, 300.0, 700.0, 5000.0}});
  const auto beats = sent<Heartbeat>(bench.wake());
  ASSERT_EQ(beats.size(), 1U);
  EXPECT_EQ(beats[0].power, (std::vector<DevicePower>{{0, 300.0, 700.0, 5000.0}}));
  bench.command(Heartbeat{});
  bench.on(DeviceHealthReported{0, {}, {}});
  EXPECT_TRUE(sent<Heartbeat>(bench.wake()).at(0).power.empty());
}

TEST(FrontendLink, HeartbeatsLeaveOutTheDevicesWhosePowerIsUnknown) {
  CoreBench bench;
  bench.connect();
  const DevicePower usage{1, 300.0, std::nullopt, std::nullopt};
  const DevicePower limit{2, std::nullopt, 700.0, std::nullopt};
  const DevicePower energy{3, std::nullopt, std::nullopt, 5000.0};
  bench.on(DeviceHealthReported{0, {}, {}});
  for (const DevicePower& power : {usage, limit, energy})
    bench.on(DeviceHealthReported{power.device, {}, power});
  const auto beats = sent<Heartbeat>(bench.wake());
  ASSERT_EQ(beats.size(), 1U);
  EXPECT_EQ(beats[0].power, (std::vector<DevicePower>{usage, limit, energy}));
}

TEST(FrontendLink, HeartbeatsAtTheConfiguredInterval) {
  CoreBench bench;
  bench.connect();
  for (int beat = 1; beat <= 10; ++beat) {
    EXPECT_EQ(bench.core().next_wakeup(), bench.now() + seconds(1));
    EXPECT_EQ(sent<Heartbeat>(bench.wake()).size(), 1U);
    EXPECT_TRUE(sent<Heartbeat>(bench.on(TimePassed{})).empty());
    bench.command(Heartbeat{});
  }
}

TEST(FrontendLink, IsDroppedAfterFourSilentHeartbeats) {
  CoreBench bench;
  bench.connect();
  const Time began = bench.now();
  BackendEffects effects;
  while (all<DisconnectFrontend>(effects).empty() && bench.now() - began < seconds(60))
    effects = bench.wake();
  EXPECT_EQ(bench.now() - began, seconds(4));
  ASSERT_EQ(all<DisconnectFrontend>(effects).size(), 1U);
  EXPECT_EQ(all<DisconnectFrontend>(effects)[0].reason.code(), StatusCode::timeout);
  EXPECT_EQ(bench.core().next_wakeup(), kNever) << "dropped once";
}

TEST(FrontendLink, ItsSilenceDoesNotCountWhileThisBackendStoodStill) {
  CoreBench bench;
  bench.connect();
  EXPECT_EQ(sent<Heartbeat>(bench.wake()).size(), 1U);
  bench.pass(seconds(100));
  const auto effects = bench.on(TimePassed{});
  EXPECT_TRUE(all<DisconnectFrontend>(effects).empty());
  EXPECT_EQ(sent<Heartbeat>(effects).size(), 1U);
  const Time again = bench.now();
  while (all<DisconnectFrontend>(bench.wake()).empty()) ASSERT_LT(bench.now() - again, seconds(60));
  EXPECT_EQ(bench.now() - again, seconds(2)) << "two heartbeats were missed before";
}

TEST(FrontendLink, IsDroppedWithoutAWelcome) {
  CoreBench bench;
  bench.on(FrontendConnected{{1}});
  EXPECT_EQ(all<DisconnectFrontend>(bench.wake()).size(), 1U);
}

TEST(FrontendLink, AnExtremeHeartbeatIntervalNeitherSpinsNorOverflows) {
  for (const Duration heartbeat : {Duration(0), Duration::max()}) {
    CoreBench bench;
    bench.on(FrontendConnected{{1}});
    bench.command(Welcome{heartbeat});
    EXPECT_GT(bench.core().next_wakeup(), bench.now());
  }
}

// ---- the end

TEST(ShuttingDown, ServesUntilItsFrontendHasMovedItsGpulets) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  const auto effects = bench.on(ShutDown{});
  EXPECT_EQ(sent<Draining>(effects).size(), 1U);
  EXPECT_TRUE(all<FinishProxy>(effects).empty());
  EXPECT_EQ(all<RunOnProxy>(bench.arrive(batch(7, 1))).size(), 1U);
  bench.ran(1, 7);
  EXPECT_EQ(all<FinishProxy>(bench.command(RetireGpulet{{1}})).size(), 1U);
  bench.end(1, {});
  EXPECT_TRUE(bench.core().finished());
}

TEST(ShuttingDown, WithoutAFrontendEndsAtOnce) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  bench.disconnect();
  EXPECT_EQ(all<FinishProxy>(bench.on(ShutDown{})).size(), 1U);
}

TEST(ShuttingDown, DoesNotWaitForLoadingGpulets) {
  CoreBench bench;
  bench.connect();
  bench.ask(1);
  bench.on(ProxyStarted{{1}});
  const auto kills = all<KillProxy>(bench.on(ShutDown{}));
  ASSERT_EQ(kills.size(), 1U);
  EXPECT_EQ(kills[0].reason.code(), StatusCode::cancelled);
  bench.on(ProxyLoaded{{1}, {}});
  EXPECT_TRUE(sent<GpuletReport>(bench.end(1, kKilled)).at(0).status.ok());
  EXPECT_TRUE(bench.core().finished());
}

TEST(ShuttingDown, FinishesBatchesInFlightAndAcceptsNoMore) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  bench.command(GpuletRequested{create(2, {"b"}), {}});
  bench.arrive(batch(7, 1));
  EXPECT_EQ(all<FinishProxy>(bench.shut_down_without_reaction()).size(), 1U);
  EXPECT_EQ(bench.phase(2), std::nullopt);
  EXPECT_FALSE(bench.core().finished());
  EXPECT_EQ(sent<BatchResult>(bench.arrive(batch(8, 1))).at(0).status.code(),
            StatusCode::unavailable);
  EXPECT_EQ(sent<GpuletReport>(bench.ask(3)).at(0).status.code(), StatusCode::unavailable);
  EXPECT_TRUE(sent<BatchResult>(bench.ran(1, 7)).at(0).status.ok());
  bench.end(1, {});
  EXPECT_TRUE(bench.core().finished());
}

}  // namespace
}  // namespace gpulet::node
