// Under random events the core does not throw, answers every batch exactly once on the connection
// on which it came, and ends after ShutDown.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "tests/backend/core_bench.h"

namespace gpulet::node {
namespace {

// Imitates the shell: keeps the contract (a process per StartGpulet, one ProxyEnded for each) and
// counts.
class RandomShell {
 public:
  void step(std::uint64_t choice, std::uint64_t gpulet) {
    switch (choice) {
      case 0:
        ask(gpulet);
        break;
      case 1:
        command(RetireGpulet{{gpulet}});
        break;
      case 2:
      case 3:
      case 4:
        arrive(gpulet, choice);
        break;
      case 5:
        take(bench_.on(ProxyStarted{{gpulet}}));
        break;
      case 6:
        take(bench_.on(
            ProxyLoaded{{gpulet}, gpulet == 6 ? Status(StatusCode::internal, "no") : Status()}));
        break;
      case 7:
        take(bench_.on(ShareActive{{gpulet}, {}}));
        break;
      case 8:
      case 9:
        answer_one(gpulet);
        break;
      case 10:
        end_process(gpulet);
        break;
      case 11:
        take(gpulet % 2 == 0 ? bench_.on(ModelStored{"sha-b", "/store/b.pt"})
                             : bench_.on(ModelFailed{"sha-b", {StatusCode::not_found, "no"}}));
        break;
      case 12:
        bench_.pass(std::chrono::milliseconds(gpulet * 40));
        take(bench_.on(TimePassed{}));
        break;
      case 13:
        toggle_frontend(gpulet);
        break;
      case 14:
        command(SetCores{{gpulet}, static_cast<double>(gpulet) / 4});
        break;
      case 15:
        take(bench_.on(
            CoresSet{{gpulet}, gpulet == 4 ? Status(StatusCode::unavailable, "no") : Status()}));
        break;
      default:
        command(Heartbeat{});
        break;
    }
    // Without a frontend only gpulets set the wake-up time, which must cover every waiting one.
    for (std::uint64_t id = 0; id < 8 && !connected_; ++id) {
      RC_ASSERT(bench_.phase(id) != GpuletPhase::restarting ||
                bench_.core().next_wakeup() != kNever);
    }
  }

  // Runs until everything has ended; returns whether it did.
  bool shut_down() {
    take(bench_.shut_down_without_reaction());
    for (std::uint64_t gpulet = 0; gpulet < 8; ++gpulet) {
      while (answer_one(gpulet)) {
      }
      end_process(gpulet);
    }
    return bench_.core().finished() && waiting_.empty();
  }

 private:
  // Dropped while no frontend is connected.
  void command(FrontendCommand command) {
    if (connected_) take(bench_.command(std::move(command)));
  }

  void ask(std::uint64_t gpulet) {
    auto asked = create(gpulet, {gpulet % 2 == 0 ? "a" : "b"}, gpulet % 4 == 3 ? 9U : 0U);
    if (gpulet % 4 == 0) asked.part.service = partition::Service::controlled;
    command(GpuletRequested{std::move(asked), {{"sha-a", "/store/a.pt"}}});
  }

  void arrive(std::uint64_t gpulet, std::uint64_t kind) {
    if (!connected_) return;
    auto made = batch(next_batch_++, gpulet, gpulet % 2 == 0 ? "a" : "b", kind == 3 ? 20 : 2);
    waiting_.insert(made.id);
    const bool placed = kind != 4 && bench_.takes_batches(gpulet);
    take(bench_.arrive(std::move(made), placed));
  }

  bool answer_one(std::uint64_t gpulet) {
    auto& given = given_[gpulet];
    if (given.empty()) return false;
    const auto id = *given.begin();
    given.erase(given.begin());
    take(bench_.ran(gpulet, id.value));
    return true;
  }

  void end_process(std::uint64_t gpulet) {
    if (processes_.erase(gpulet) == 0) return;
    given_.erase(gpulet);
    take(bench_.end(gpulet));
  }

  void toggle_frontend(std::uint64_t coin) {
    if (connected_ && coin % 2 == 0) lose_frontend();
    if (!connected_) {
      connected_ = true;
      take(bench_.connect());
    }
  }
  void lose_frontend() {
    connected_ = false;
    waiting_.clear();  // no batch may be answered any more
    take(bench_.disconnect());
  }

  void take(const BackendEffects& effects) {
    bool dropped = false;
    for (const auto& start : all<StartGpulet>(effects)) {
      RC_ASSERT(processes_.insert(start.gpulet.value).second);  // at most one per gpulet
    }
    for (const auto& adjust : all<AdjustCores>(effects)) {
      RC_ASSERT(bench_.phase(adjust.gpulet.value) == GpuletPhase::ready);
    }
    for (const auto& run : all<RunOnProxy>(effects)) {
      RC_ASSERT(processes_.contains(run.gpulet.value));
      given_[run.gpulet.value].insert(run.batch.id);
    }
    for (const auto& result : sent<BatchResult>(effects)) {
      RC_ASSERT(waiting_.erase(result.id) == 1U);  // from this connection, and not answered before
    }
    RC_ASSERT(connected_ || all<SendToFrontend>(effects).empty());
    dropped = !all<DisconnectFrontend>(effects).empty();
    if (dropped) lose_frontend();
  }

  CoreBench bench_;
  bool connected_ = false;
  std::uint64_t next_batch_ = 1;
  std::set<BatchId> waiting_;
  std::set<std::uint64_t> processes_;
  std::map<std::uint64_t, std::set<BatchId>> given_;  // batches of each process
};

RC_GTEST_PROP(BackendCoreProperty, EveryBatchIsAnsweredExactlyOnce, ()) {
  const auto steps = *rc::gen::scale(
      5.0, rc::gen::container<std::vector<std::pair<std::uint64_t, std::uint64_t>>>(rc::gen::pair(
               rc::gen::inRange<std::uint64_t>(0, 17), rc::gen::inRange<std::uint64_t>(0, 8))));
  RandomShell shell;
  for (const auto& [choice, gpulet] : steps) shell.step(choice, gpulet);
  RC_ASSERT(shell.shut_down());
}

}  // namespace
}  // namespace gpulet::node
