// Threads for connections, and listeners and slots that several threads use.
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/net/event_loop.h"
#include "gpulet/net/listener.h"
#include "tests/net/loop.h"

namespace gpulet::net::io_threads_test {
namespace {

using namespace std::chrono_literals;
using testing::Loop;

constexpr auto kPatience = 20s;

// What `ask` returns on the thread of `io`.
template <typename Ask>
auto on_thread(asio::io_context& io, Ask ask) {
  std::packaged_task<decltype(ask())()> task(std::move(ask));
  auto answer = task.get_future();
  asio::post(io, std::move(task));
  return answer.get();
}

std::string name_of_thread() {
  std::array<char, 16> name{};
  ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  return name.data();
}

TEST(IoThreads, AreNamedAndSeparate) {
  const IoThreads threads(3);
  ASSERT_EQ(threads.size(), 3U);
  std::set<std::thread::id> ids{std::this_thread::get_id()};
  for (std::size_t i = 0; i < threads.size(); ++i) {
    EXPECT_EQ(on_thread(threads.io(i), name_of_thread), "io-" + std::to_string(i));
    ids.insert(on_thread(threads.io(i), [] { return std::this_thread::get_id(); }));
  }
  EXPECT_EQ(ids.size(), 4U);
}

TEST(IoThreads, FinishWaitsForTheLastWork) {
  IoThreads threads(2);
  std::atomic<bool> worked = false;
  std::promise<bool> ended;
  asio::steady_timer timer(threads.io(1));
  on_thread(threads.io(1), [&] {
    timer.expires_after(50ms);
    timer.async_wait([&](const auto&) { worked = true; });
    return true;
  });
  threads.finish([&] { ended.set_value(worked); });
  auto seen = ended.get_future();
  ASSERT_EQ(seen.wait_for(kPatience), std::future_status::ready);
  EXPECT_TRUE(seen.get());
}

TEST(IoThreads, HaltEndsThemInTheMiddleOfTheirWork) {
  IoThreads threads(2);
  std::promise<void> ended;
  asio::steady_timer timer(threads.io(0));
  on_thread(threads.io(0), [&] {
    timer.expires_after(1h);
    timer.async_wait([](const auto&) {});
    return true;
  });
  threads.halt();
  threads.finish([&] { ended.set_value(); });
  EXPECT_EQ(ended.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST(IoThreads, NoneFinishAtOnce) {
  IoThreads threads(0);
  bool ended = false;
  threads.finish([&] { ended = true; });
  EXPECT_TRUE(ended);
}

TEST(IoThreads, MayEndWithHandlersThatNeverRan) {
  auto held = std::make_shared<int>(1);
  {
    IoThreads threads(1);
    threads.halt();
    asio::post(threads.io(0), [held] {});
  }
  EXPECT_EQ(held.use_count(), 1);
}

// ---- Listener

// What arrived at a thread.
class Arrivals {
 public:
  Listener::Receiver receiver(IoThreads& threads, std::size_t thread) {
    return {threads.io(thread).get_executor(),
            [this, thread](Stream stream, ConnectionSlotPointer slot) {
              const std::lock_guard lock(mutex_);
              by_thread_[thread].insert(name_of_thread());
              streams_.push_back(std::move(stream));
              slots_.push_back(std::move(slot));
            }};
  }
  [[nodiscard]] std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return streams_.size();
  }
  [[nodiscard]] std::map<std::size_t, std::multiset<std::string>> by_thread() const {
    const std::lock_guard lock(mutex_);
    return by_thread_;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    streams_.clear();
    slots_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::size_t, std::multiset<std::string>> by_thread_;
  std::vector<Stream> streams_;
  std::vector<ConnectionSlotPointer> slots_;
};

TEST(ListenerOfSeveralThreads, GivesEachConnectionToTheNextOne) {
  Loop loop;
  IoThreads threads(2);
  Arrivals arrivals;
  const auto listener =
      Listener::listen(loop.executor(), "127.0.0.1", 0, {},
                       {arrivals.receiver(threads, 0), arrivals.receiver(threads, 1)})
          .value();
  std::vector<asio::ip::tcp::socket> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back(loop.context());
    clients.back().connect({asio::ip::address_v4::loopback(), listener->port()});
  }
  ASSERT_TRUE(loop.run_until([&] { return arrivals.count() == 6; }));
  EXPECT_EQ(listener->connections(), 6U);
  const std::multiset<std::string> first{"io-0", "io-0", "io-0"};
  const std::multiset<std::string> second{"io-1", "io-1", "io-1"};
  EXPECT_EQ(arrivals.by_thread().at(0), first);
  EXPECT_EQ(arrivals.by_thread().at(1), second);
  listener->close();
  threads.join();
  arrivals.clear();
  EXPECT_EQ(listener->connections(), 0U);
}

// ---- ConnectionSlots

// An idle connection that gives its slot back on a thread of its own when it is evicted.
class IdleConnection final : public ConnectionSlot::Holder {
 public:
  explicit IdleConnection(ConnectionSlotPointer slot) : slot_(std::move(slot)) {
    slot_->set_holder(*this);
  }
  ~IdleConnection() { slot_.reset(); }
  IdleConnection(const IdleConnection&) = delete;
  IdleConnection& operator=(const IdleConnection&) = delete;
  [[nodiscard]] Activity activity() const override { return {State::silent, since_}; }
  void evict() override { evicted_ = true; }
  [[nodiscard]] bool evicted() const { return evicted_; }

 private:
  std::atomic<ConnectionSlot::TimePoint> since_ = ConnectionSlot::TimePoint{};
  std::atomic<bool> evicted_ = false;
  ConnectionSlotPointer slot_;
};

TEST(SlotsOfSeveralThreads, NeverExceedTheirLimitAndReturn) {
  constexpr std::size_t kSlots = 8;
  constexpr int kRounds = 400;
  ConnectionSlots slots({.general = kSlots, .eviction_divisor = kSlots});
  std::atomic<std::size_t> most = 0;
  std::vector<std::jthread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      const std::string address(4, static_cast<char>(number));
      std::vector<std::unique_ptr<IdleConnection>> held;
      for (int round = 0; round < kRounds; ++round) {
        const auto now = ConnectionSlot::TimePoint{} + std::chrono::hours(round);
        if (auto slot = slots.take(address, now))
          held.push_back(std::make_unique<IdleConnection>(std::move(slot)));
        const std::size_t taken = slots.taken();
        std::size_t before = most;
        while (taken > before && !most.compare_exchange_weak(before, taken)) {
        }
        std::erase_if(held, [](const auto& connection) { return connection->evicted(); });
        if (held.size() > 3) held.erase(held.begin());
      }
    });
  }
  threads.clear();
  EXPECT_LE(most, kSlots);
  EXPECT_EQ(slots.taken(), 0U);
}

}  // namespace
}  // namespace gpulet::net::io_threads_test
