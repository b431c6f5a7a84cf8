// Models that take turns on gpulets: Dispatcher, whose work does not grow with the models of a
// gpulet, decides like a reference that looks at every slot each time.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "gpulet/base/random.h"
#include "serve/dispatch/dispatcher.h"
#include "tests/support/serve/dispatched.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::dispatcher_turns_test {
namespace {

using std::chrono::milliseconds;
using testing::byte_model;
using testing::byte_request;
using testing::echo;

using Tags = std::vector<std::uint8_t>;

struct Sent {
  GpuletId gpulet;
  ModelIndex model = 0;
  Tags tags;

  friend bool operator==(const Sent&, const Sent&) = default;
};

class Reference {
 public:
  Reference(std::size_t models, const std::vector<GpuletRoute>& routes, Time now)
      : models_(models) {
    for (const GpuletRoute& route : routes) {
      Gpulet& gpulet = gpulets_[route.gpulet];
      gpulet.duty_cycle = route.duty_cycle;
      for (const SlotSpec& spec : route.slots)
        gpulet.slots.push_back({spec.model, spec.execution, now, {spec.rate, 0}});
    }
    for (ModelIndex model = 0; model < models; ++model) {
      split(model);
      touch(model);
    }
  }

  void enqueue(ModelIndex model, Request request) {
    models_[model].requests.push(std::move(request));
    touch(model);
  }

  void completed(GpuletId id, Duration expected, Time predicted_end, Time now) {
    Gpulet& gpulet = gpulets_.at(id);
    gpulet.allowance.observe(now - predicted_end, expected);
    --gpulet.in_flight;
    gpulet.expected -= expected;
    gpulet.busy_until = now + gpulet.expected;
    if (gpulet.slots.size() == 1) return touch(gpulet.slots.front().model);
    list_due(id);
  }

  void set_ready(GpuletId id, bool ready, Time now) {
    Gpulet& gpulet = gpulets_.at(id);
    const bool changed = std::exchange(gpulet.ready, ready) != ready;
    gpulet.busy_until = std::max(gpulet.busy_until, now);
    for (const Slot& slot : gpulet.slots) {
      if (changed) split(slot.model);
      touch(slot.model);
    }
  }

  std::vector<Sent> pump(Time now) {
    sent_.clear();
    std::vector<std::pair<Time, ModelIndex>> models;
    for (ModelIndex model = 0; model < models_.size(); ++model)
      if (models_[model].wake <= now) models.emplace_back(models_[model].wake, model);
    std::sort(models.begin(), models.end());
    for (const auto& [time, model] : models) {
      models_[model].wake = kNever;
      touch(model);
    }
    std::vector<std::pair<Time, GpuletId>> gpulets;
    for (const auto& [id, gpulet] : gpulets_)
      if (gpulet.wake <= now) gpulets.emplace_back(gpulet.wake, id);
    std::sort(gpulets.begin(), gpulets.end());
    for (const auto& [time, id] : gpulets) {
      gpulets_.at(id).wake = kNever;
      list_due(id);
    }
    while (!due_.empty() || !touched_.empty()) {
      if (touched_.empty()) {
        const GpuletId id = due_.back();
        due_.pop_back();
        if (!gpulets_.at(id).ready) continue;
        while (pump_in_turn(id, now)) {
        }
        for (const Slot& slot : gpulets_.at(id).slots) drop_hopeless(slot.model, now);
        continue;
      }
      const ModelIndex model = touched_.back();
      touched_.pop_back();
      pump_model(model, now);
    }
    return sent_;
  }

  [[nodiscard]] std::size_t queued(ModelIndex model) const {
    return models_[model].requests.size();
  }
  // Of the gpulet's last batch.
  [[nodiscard]] Time predicted_end(GpuletId id) const { return gpulets_.at(id).busy_until; }

 private:
  struct Slot {
    ModelIndex model = 0;
    std::vector<Duration> execution;
    Time turn{};
    batching::RateSplit::Slot part;
  };
  struct Gpulet {
    Duration duty_cycle{};
    std::vector<Slot> slots;
    bool ready = true;
    std::size_t in_flight = 0;
    Duration expected{};
    Time busy_until{};
    batching::Allowance allowance;
    Time wake = kNever;
  };
  struct Model {
    batching::DeadlineQueue requests;
    batching::RateSplit split;
    Time wake = kNever;
  };

  void touch(ModelIndex model) {
    if (std::find(touched_.begin(), touched_.end(), model) == touched_.end())
      touched_.push_back(model);
  }

  void list_due(GpuletId id) {
    if (std::find(due_.begin(), due_.end(), id) == due_.end()) due_.push_back(id);
  }

  // Calls visit(id, gpulet, slot) for every slot of the model.
  template <typename Visit>
  void for_slots(ModelIndex model, const Visit& visit) {
    for (auto& [id, gpulet] : gpulets_) {
      for (Slot& slot : gpulet.slots) {
        if (slot.model == model) visit(id, gpulet, slot);
      }
    }
  }

  void split(ModelIndex model) {
    models_[model].split.clear();
    for_slots(model, [&](GpuletId, Gpulet& gpulet, Slot& slot) {
      if (gpulet.ready) models_[model].split.join(slot.part);
    });
  }

  [[nodiscard]] bool backlogged(ModelIndex model) {
    std::size_t room = 0;
    for_slots(model, [&](GpuletId, const Gpulet& gpulet, const Slot& slot) {
      if (gpulet.ready) room += slot.execution.size();
    });
    return queued(model) > room;
  }

  [[nodiscard]] Time reachable(const Gpulet& gpulet, const Slot& slot, Time now) const {
    const Duration execution =
        queued(slot.model) > slot.execution.size() ? slot.execution.back() : slot.execution.front();
    return std::max(now, gpulet.busy_until) + execution + gpulet.allowance.for_execution(execution);
  }

  [[nodiscard]] std::optional<batching::SlotView> view_of(const Gpulet& gpulet, const Slot& slot,
                                                          Time now) const {
    const batching::DeadlineQueue& queue = models_[slot.model].requests;
    if (queue.empty()) return std::nullopt;
    const Time from = reachable(gpulet, slot, now);
    batching::SlotView view;
    view.waiting = queue.count_due_from(from);
    if (view.waiting == 0) return std::nullopt;
    view.most_urgent = queue.first_deadline_from(from);
    view.execution = slot.execution;
    view.turn = slot.turn;
    view.start = std::max(now, gpulet.busy_until);
    const std::size_t count = std::min(view.waiting, slot.execution.size());
    view.allowance = gpulet.allowance.for_execution(slot.execution[count - 1]);
    view.bind = now;
    if (gpulet.in_flight > 0) {
      const Duration ahead =
          std::chrono::microseconds(300) + from_seconds(static_cast<double>(count) / 2e9);
      view.bind = view.start - ahead;
    }
    return view;
  }

  static bool has_room(const Gpulet& gpulet) {
    return gpulet.ready && gpulet.in_flight < kBatchesInFlight;
  }

  bool pump_alone(GpuletId id, Time now) {
    Gpulet& gpulet = gpulets_.at(id);
    if (!has_room(gpulet)) return false;
    Slot& slot = gpulet.slots.front();
    auto view = view_of(gpulet, slot, now);
    if (!view) return false;
    view->yields = models_[slot.model].split.ahead(slot.part) && !backlogged(slot.model);
    const batching::Decision decision = batching::decide(*view, now);
    if (const auto* wait = std::get_if<batching::WaitUntil>(&decision)) {
      Time& wake = models_[slot.model].wake;
      wake = std::min(wake, wait->time);
      return false;
    }
    send(id, slot, std::get<batching::Dispatch>(decision).count, now);
    return true;
  }

  bool pump_in_turn(GpuletId id, Time now) {
    Gpulet& gpulet = gpulets_.at(id);
    if (!has_room(gpulet)) return false;
    Slot* next = nullptr;
    std::optional<batching::SlotView> chosen;
    for (Slot& slot : gpulet.slots) {
      if (next != nullptr && slot.turn >= next->turn) continue;
      const bool leaves = models_[slot.model].split.ahead(slot.part) &&
                          (gpulet.in_flight > 0 || !backlogged(slot.model));
      if (leaves) continue;
      const auto view = view_of(gpulet, slot, now);
      if (!view) continue;
      next = &slot;
      chosen = view;
    }
    if (next == nullptr) return false;
    const auto count =
        static_cast<std::uint32_t>(std::min(chosen->waiting, next->execution.size()));
    if (now < chosen->bind) {
      gpulet.wake = std::min(gpulet.wake, chosen->bind);
      return false;
    }
    send(id, *next,
         batching::largest_batch_by(next->execution, count, chosen->start + chosen->allowance,
                                    chosen->most_urgent),
         now);
    return true;
  }

  void send(GpuletId id, Slot& slot, std::uint32_t count, Time now) {
    Gpulet& gpulet = gpulets_.at(id);
    Model& model = models_[slot.model];
    Sent sent{id, slot.model, {}};
    for (const Request& request : model.requests.take_due_from(reachable(gpulet, slot, now), count))
      sent.tags.push_back(static_cast<std::uint8_t>(request.tag));
    const Duration expected = slot.execution[sent.tags.size() - 1];
    gpulet.expected += expected;
    gpulet.busy_until = std::max(now, gpulet.busy_until) + expected;
    ++gpulet.in_flight;
    slot.turn = now + gpulet.duty_cycle;
    model.split.take(slot.part, sent.tags.size(), slot.execution.size());
    std::size_t slots = 0;
    for_slots(slot.model, [&](GpuletId, Gpulet&, Slot&) { ++slots; });
    if (slots > 1) touch(slot.model);
    sent_.push_back(std::move(sent));
  }

  void pump_model(ModelIndex model, Time now) {
    for_slots(model, [&](GpuletId id, Gpulet& gpulet, Slot&) {
      while (gpulet.slots.size() == 1 ? pump_alone(id, now) : pump_in_turn(id, now)) {
      }
    });
    drop_hopeless(model, now);
    if (queued(model) == 0) return;
    Time& wake = models_[model].wake;
    wake = std::min(wake, models_[model].requests.front_deadline() + Duration(1));
  }

  void drop_hopeless(ModelIndex model, Time now) {
    Time earliest = kNever;
    for_slots(model, [&](GpuletId, const Gpulet& gpulet, const Slot& slot) {
      if (gpulet.ready) earliest = std::min(earliest, reachable(gpulet, slot, now));
    });
    (void)models_[model].requests.take_due_before(earliest == kNever ? now : earliest);
  }

  std::vector<Model> models_;
  std::map<GpuletId, Gpulet> gpulets_;
  std::vector<ModelIndex> touched_;
  std::vector<GpuletId> due_;
  std::vector<Sent> sent_;
};

std::vector<Duration> made_execution(Random& random) {
  std::vector<Duration> execution;
  Duration time = milliseconds(1 + random.below(4));
  for (std::uint64_t n = 1 + random.below(4); n > 0; --n) {
    execution.push_back(time);
    time += milliseconds(random.below(3));
  }
  return execution;
}

std::vector<GpuletRoute> made_routes(Random& random, std::size_t models) {
  std::vector<GpuletRoute> routes;
  for (std::uint64_t id = 1 + random.below(3); id > 0; --id) {
    GpuletRoute route{GpuletId{id}, BackendId{1}, milliseconds(1 + random.below(20)), {}};
    const std::uint64_t chance = 1 + random.below(4);
    for (ModelIndex model = 0; model < models; ++model) {
      if (random.below(4) >= chance) continue;
      route.slots.push_back(
          {model, made_execution(random), static_cast<double>(10 * random.below(5))});
    }
    if (!route.slots.empty()) routes.push_back(std::move(route));
  }
  return routes;
}

class Comparison {
 public:
  explicit Comparison(std::uint64_t seed)
      : random_(seed),
        models_(1 + random_.below(6)),
        routes_(made_routes(random_, models_)),
        dispatcher_(served(models_), 1000, BatchId{1}),
        reference_(models_, routes_, now_) {
    dispatcher_.set_routes(routes_, now_);
    pump();
  }

  void run() {
    if (routes_.empty()) return;
    for (int step = 0; step < 200; ++step) {
      advance(milliseconds(random_.below(4)));
      for (std::uint64_t events = 1 + random_.below(2); events > 0; --events) happen();
      pump();
    }
  }

 private:
  struct Running {
    Batch batch;
    Time predicted_end{};
  };

  static std::vector<ServedModel> served(std::size_t count) {
    std::vector<ServedModel> models;
    for (std::size_t i = 0; i < count; ++i)
      models.push_back(byte_model(std::string(1, static_cast<char>('a' + i)), 100, 0));
    return models;
  }

  // Pumps at every millisecond and whenever the dispatcher asks for it.
  void advance(Duration time) {
    for (const Time end = now_ + time; now_ < end;) {
      const Time next = std::min(end, now_ + milliseconds(1));
      while (dispatcher_.next_wake() < next) {
        now_ = std::max(now_, dispatcher_.next_wake());
        pump();
      }
      now_ = next;
      pump();
    }
  }

  void happen() {
    const std::uint64_t kind = random_.below(20);
    if (kind < 11) {
      const ModelIndex model = random_.below(models_);
      const Time deadline = now_ + milliseconds(5 + random_.below(60));
      DispatchOutput out;
      dispatcher_.enqueue(model, byte_request(++tag_, now_, deadline), now_, out);
      reference_.enqueue(model, byte_request(tag_, now_, deadline));
    } else if (kind < 19) {
      std::deque<Running>& running = running_[routes_[random_.below(routes_.size())].gpulet];
      if (running.empty()) return;
      const Running ended = std::move(running.front());
      running.pop_front();
      DispatchOutput out;
      dispatcher_.completed(echo(ended.batch), now_, out);
      reference_.completed(ended.batch.gpulet, ended.batch.expected_duration, ended.predicted_end,
                           now_);
    } else {
      const GpuletId id = routes_[random_.below(routes_.size())].gpulet;
      const bool ready = random_.below(3) > 0;
      dispatcher_.set_ready(id, ready, now_);
      reference_.set_ready(id, ready, now_);
    }
  }

  void pump() {
    DispatchOutput out;
    dispatcher_.pump(now_, out);
    const std::vector<Sent> expected = reference_.pump(now_);
    RC_ASSERT(out.batches.size() == expected.size());
    std::map<GpuletId, Duration> after;  // of the batches sent now
    for (auto sent = out.batches.rbegin(); sent != out.batches.rend(); ++sent) {
      const Batch& batch = sent->batch;
      const auto& same = expected[static_cast<std::size_t>(out.batches.rend() - sent) - 1];
      Tags tags;
      for (const Bytes& slice : batch.inputs) {
        for (const std::byte tag : slice.view()) tags.push_back(static_cast<std::uint8_t>(tag));
      }
      RC_ASSERT((Sent{batch.gpulet, static_cast<ModelIndex>(batch.model[0] - 'a'), tags} == same));
      Duration& later = after[batch.gpulet];
      ends_[batch.id] = reference_.predicted_end(batch.gpulet) - later;
      later += batch.expected_duration;
    }
    for (const BatchToSend& sent : out.batches)
      running_[sent.batch.gpulet].push_back({sent.batch, ends_.at(sent.batch.id)});
    for (ModelIndex model = 0; model < models_; ++model)
      RC_ASSERT(dispatcher_.queues().queued(model) == reference_.queued(model));
  }

  Random random_;
  std::size_t models_;
  std::vector<GpuletRoute> routes_;
  Time now_{milliseconds(100)};
  Dispatcher dispatcher_;
  Reference reference_;
  std::uint64_t tag_ = 0;
  std::map<GpuletId, std::deque<Running>> running_;
  std::map<BatchId, Time> ends_;
};

RC_GTEST_PROP(DispatcherTurns, DecidesLikeALookAtEverySlot, ()) {
  Comparison(*rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>())).run();
}

}  // namespace
}  // namespace gpulet::serve::dispatcher_turns_test
