#include "gpulet/load/client.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/protocol/codec.h"
#include "load/link.h"

namespace gpulet::load {

namespace {

std::string names_of(const std::vector<ModelInfo>& served) {
  std::vector<std::string> names;
  names.reserve(served.size());
  for (const ModelInfo& model : served) names.push_back(model.name);
  return names.empty() ? "no models" : joined(names);
}

// The lengths that requests have; those of the buckets where the workload says nothing.
std::vector<std::int64_t> lengths_of(const config::WorkloadModel& model, const ModelInfo& info) {
  std::vector<std::int64_t> lengths(info.lengths.begin(), info.lengths.end());
  if (!model.lengths) return lengths;
  const std::int64_t least = model.lengths->first;
  const std::int64_t most = model.lengths->second;
  if (!info.pads) {
    std::erase_if(lengths, [&](std::int64_t one) { return one < least || one > most; });
    return lengths;
  }
  lengths.clear();
  for (std::int64_t one = least; one <= most; ++one) lengths.push_back(one);
  return lengths;
}

Result<InputPool> inputs_of(const config::WorkloadModel& model, const ModelInfo& info,
                            std::uint64_t seed) {
  if (!model.input) {
    // A random stream of its own: inputs must not correlate with arrivals.
    return random_inputs(info.inputs, stream_seed(seed, info.name + "/inputs"),
                         lengths_of(model, info), model.ranges);
  }
  if (model.input->labels &&
      (info.outputs.empty() || info.outputs.front().type == DataType::boolean ||
       info.outputs.front().type == DataType::bytes)) {
    return Status(
        StatusCode::invalid,
        "labels are compared with the arg max of the first output, which must hold numbers; the "
        "model has " +
            (info.outputs.empty() ? std::string("no output") : to_string(info.outputs.front())));
  }
  return read_inputs(*model.input, info.inputs);
}

// Images are sent as clients have them, without the rest of their slots.
Result<InputPool> without_zeros(InputPool pool) {
  const std::vector<TensorSpec>& inputs = pool.inputs.front();
  if (inputs.size() != 1 || !inputs.front().image) return pool;
  for (Bytes& request : pool.requests) {
    GPULET_TRY(Bytes image, without_padding(inputs.front(), request));
    request = std::move(image);
  }
  return pool;
}

}  // namespace

Result<std::vector<PreparedModel>> prepare(const std::vector<config::WorkloadModel>& workload,
                                           const std::vector<ModelInfo>& served, const Scale& scale,
                                           std::uint64_t seed) {
  std::vector<PreparedModel> prepared;
  for (std::size_t i = 0; i < workload.size(); ++i) {
    const config::WorkloadModel& model = workload[i];
    const std::string pointer = fmt::format("/models/{}", i);
    const auto info = std::find_if(served.begin(), served.end(), [&model](const ModelInfo& one) {
      return one.name == model.name;
    });
    if (info == served.end()) {
      return Status(StatusCode::not_found,
                    fmt::format(R"({}/name: the target does not serve "{}"; it serves {})", pointer,
                                model.name, names_of(served)));
    }
    Result<InputPool> pool = inputs_of(model, *info, seed);
    if (pool.ok()) pool = without_zeros(std::move(pool).value());
    if (!pool.ok()) return pool.status().within(pointer + "/input");
    PreparedModel ready;
    ready.load = {.name = model.name,
                  .arrivals = model.arrivals,
                  .rate = model.rate * scale.rate,
                  .concurrency = model.concurrency,
                  .slo = from_ms(model.slo_ms > 0 ? model.slo_ms * scale.slo : info->slo_ms),
                  .inputs = pool.value().requests.size(),
                  .labelled = !pool.value().labels.empty()};
    ready.timeout = from_ms(model.slo_ms * scale.slo);
    ready.pool = std::move(pool).value();
    prepared.push_back(std::move(ready));
  }
  return prepared;
}

namespace {

namespace asio = net::asio;
using boost::system::error_code;
using std::chrono::steady_clock;

// Requests sent before received replies are processed.
constexpr int kMaxSendBurst = 64;
constexpr std::size_t kMostOwners = 256;  // whose addresses replies may name
constexpr Duration kLookForOverdue = std::chrono::milliseconds(100);
// How long an owner that left a request unanswered gets no further ones.
constexpr Duration kAvoidSilentOwner = std::chrono::seconds(10);

// One thread's part of the load: its requests, and the connections on which they are sent. It
// shares nothing with the other parts but what nobody changes: models and options. One thread at a
// time, except for progress() and end_sending().
class LoadPart : public LinkOwner {
 public:
  LoadPart(const std::vector<PreparedModel>& models, const LoadOptions& options, const Part& part,
           Generator::OnSettled on_settled)
      : models_(models),
        options_(options),
        generator_(loads_of(models), generator_options(options, part), std::move(on_settled)),
        send_timer_(context_),
        overdue_timer_(context_),
        deadline_timer_(context_) {
    std::vector<config::Endpoint> endpoints = {options.target.endpoint};
    endpoints.insert(endpoints.end(), options.others.begin(), options.others.end());
    // Neighbours, so that each part has connections to different endpoints.
    const std::uint64_t connections = std::max(options.connections, 1U);
    const std::uint64_t end = connections * (part.number + 1) / part.of;
    for (std::uint64_t i = connections * part.number / part.of; i < end; ++i)
      links_.push_back(std::make_unique<Link>(*this, context_, options_, endpoints, i));
    owner_of_.resize(models.size());
    awaited_.resize(models.size());
  }

  // Opens all connections.
  Status open() {
    Status failure;
    for (const auto& link : links_) {
      link->open([this, &failure](const Status& status) {
        if (failure.ok()) failure = status;
        ++attempts_done_;
      });
    }
    run_until([this] { return attempts_done_ == links_.size(); });
    return failure;
  }

  // Blocks until all requests have outcomes. `started` is time zero of all parts.
  void run(steady_clock::time_point started) {
    phase_ = Phase::running;
    started_ = started;
    send_due();
    give_up_overdue_later();
    wait_for_the_end();
    run_until([this] { return phase_ == Phase::over; });
  }

  // Any thread. At most kLookForOverdue old.
  [[nodiscard]] Progress progress() const {
    const std::lock_guard lock(published_mutex_);
    return published_;
  }
  // Any thread, from run() on.
  void end_sending() {
    asio::post(context_, [this] {
      if (phase_ != Phase::running) return;
      generator_.end_sending(time());
      wait_for_the_end();
      if (generator_.finished()) stop();
    });
  }

  // Afterwards report() has what both measured. REQUIRES: run() of both has returned.
  void merge(const LoadPart& other) {
    generator_.merge(other.generator_);
    ended_ = std::max(ended_, other.ended_);
    connections_lost_ += other.connections_lost_;
    unexpected_replies_ += other.unexpected_replies_;
  }
  [[nodiscard]] LoadReport report() const {
    return {.models = generator_.rows(),
            .sender_lag = generator_.sender_lag(),
            .elapsed = ended_.time_since_epoch(),
            .outstanding_limit_hit = generator_.outstanding_limit_hit(),
            .connections_lost = connections_lost_,
            .unexpected_replies = unexpected_replies_};
  }

  void on_reply(InferReply reply) override {
    const Time now = time();
    const std::optional<DueRequest> request = generator_.in_flight(reply.tag);
    if (!request) {
      ++unexpected_replies_;
      return;
    }
    Generator::Reply answer{.status = reply.status,
                            .batch_size = reply.batch_size,
                            .queued = reply.queued,
                            .executed = reply.executed,
                            .correct = judge(*request, reply)};
    generator_.complete(reply.tag, answer, now);
    if (options_.follow_owners && !reply.served_by.empty()) follow(request->model, reply.served_by);
    send_due();
  }

  void on_link_lost(const std::unordered_set<std::uint64_t>& lost, const Status& reason) override {
    ++connections_lost_;
    if (phase_ != Phase::running) return;
    const Time now = time();
    for (const std::uint64_t tag : lost) {
      generator_.fail(tag, Status(StatusCode::unavailable, "connection lost: " + reason.message()),
                      true, now);
    }
    send_due();
  }

 private:
  enum class Phase { opening, running, over };

  // A frontend that replies named.
  struct Owner {
    std::unique_ptr<Link> link;
    Time avoided_until{};
  };
  // A request that was sent, answered or not.
  struct Awaited {
    Time until{};
    std::uint64_t tag = 0;
    Owner* owner = nullptr;  // null: it went to a frontend of the options
  };

  static GeneratorOptions generator_options(const LoadOptions& options, const Part& part) {
    GeneratorOptions generator = options.generator;
    generator.part = part;
    return generator;
  }

  static std::vector<ModelLoad> loads_of(const std::vector<PreparedModel>& models) {
    std::vector<ModelLoad> loads;
    loads.reserve(models.size());
    for (const PreparedModel& model : models) loads.push_back(model.load);
    return loads;
  }

  [[nodiscard]] Time time() const { return Time(steady_clock::now() - started_); }
  [[nodiscard]] steady_clock::time_point on_clock(Time time) const {
    return started_ + time.time_since_epoch();
  }

  // context_.run() would wait for all connections and connection attempts to end.
  template <typename Condition>
  void run_until(Condition condition) {
    while (!condition()) context_.run_one();
  }

  std::optional<bool> judge(const DueRequest& request, const InferReply& reply) const {
    const std::vector<std::int64_t>& labels = models_[request.model].pool.labels;
    if (labels.empty() || !reply.status.ok()) return std::nullopt;
    if (reply.outputs.empty() || reply.payload.empty()) return false;
    return arg_max(reply.outputs.front().type, reply.payload.front()) == labels[request.input];
  }

  // Sends all due requests and sets the timer for the next one.
  void send_due() {
    if (phase_ != Phase::running) return;
    for (int sent = 0; sent < kMaxSendBurst; ++sent) {
      const std::optional<DueRequest> request = generator_.next(time());
      if (!request) return wait_for_due();
      send(*request);
    }
    if (std::exchange(send_posted_, true)) return;
    asio::post(context_, [this] {
      send_posted_ = false;
      send_due();
    });
  }

  void wait_for_due() {
    if (generator_.finished()) return stop();
    const Time due = generator_.next_due();
    if (due == timer_set_for_) return;
    timer_set_for_ = due;
    if (due == kNever) {
      send_timer_.cancel();
      return;
    }
    send_timer_.expires_at(on_clock(due));
    send_timer_.async_wait([this](error_code error) {
      if (error) return;
      timer_set_for_ = kNever;
      send_due();
    });
  }

  void send(const DueRequest& request) {
    Owner* const owner = owner_of_[request.model];
    const bool goes_to_owner =
        owner != nullptr && owner->link->is_open() && time() >= owner->avoided_until;
    Link* const link = goes_to_owner ? owner->link.get() : next_open_link();
    if (link == nullptr) {
      Status status(StatusCode::unavailable, "not sent: no connection to the target is open");
      generator_.fail(request.tag, std::move(status), false, time());
      return;
    }
    const PreparedModel& model = models_[request.model];
    InferRequest message{
        .tag = request.tag,
        .model = model.load.name,
        .timeout = model.timeout,
        .inputs = model.pool.inputs_of(request.input),
        .payload = options_.synthetic_inputs ? Bytes() : model.pool.requests[request.input],
        .synthetic = options_.synthetic_inputs};
    link->send(request.tag, protocol::encode(ClientMessage(std::move(message))));
    const Duration patience = std::max(model.timeout, model.load.slo) + options_.last_answer_grace;
    awaited_[request.model].push_back(
        {time() + patience, request.tag, goes_to_owner ? owner : nullptr});
  }

  // Requests without a reply would hold their slots of a closed loop, and silent owners would get
  // more and more of them.
  void give_up_overdue() {
    const Time now = time();
    for (std::deque<Awaited>& awaited : awaited_) {
      for (; !awaited.empty() && awaited.front().until <= now; awaited.pop_front()) {
        const Awaited& request = awaited.front();
        if (!generator_.in_flight(request.tag)) continue;
        if (request.owner != nullptr) request.owner->avoided_until = now + kAvoidSilentOwner;
        generator_.fail(request.tag, Status(StatusCode::timeout, "no reply in time"), true, now);
      }
    }
  }

  void give_up_overdue_later() {
    overdue_timer_.expires_after(kLookForOverdue);
    overdue_timer_.async_wait([this](error_code error) {
      if (error || phase_ != Phase::running) return;
      give_up_overdue();
      send_due();
      publish_progress();
      give_up_overdue_later();
    });
  }

  // Another frontend serves the model: its next requests go there, once it can be reached.
  void follow(std::size_t model, const std::string& address) {
    const auto known = owners_.find(address);
    if (known != owners_.end()) {
      owner_of_[model] = &known->second;
      return;
    }
    const Result<config::Endpoint> endpoint = config::parse_endpoint(address);
    if (!endpoint.ok() || owners_.size() == kMostOwners) return;
    Owner& owner = owners_[address];
    owner.link = std::make_unique<Link>(*this, context_, options_,
                                        std::vector<config::Endpoint>{endpoint.value()}, 0);
    owner.link->open();
    owner_of_[model] = &owner;
  }

  Link* next_open_link() {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      Link* const link = links_[next_link_++ % links_.size()].get();
      if (link->is_open()) return link;
    }
    return nullptr;
  }

  void publish_progress() {
    const Progress progress = generator_.progress();
    const std::lock_guard lock(published_mutex_);
    published_ = progress;
  }

  // Limits the run if the server stops replying.
  void wait_for_the_end() {
    Duration slo_max{};
    for (const PreparedModel& model : models_) slo_max = std::max(slo_max, model.load.slo);
    deadline_timer_.expires_at(on_clock(generator_.end()) + slo_max + options_.last_answer_grace);
    deadline_timer_.async_wait([this](error_code error) {
      if (error) return;
      generator_.fail_all(time());
      stop();
    });
  }

  void stop() {
    if (std::exchange(phase_, Phase::over) != Phase::running) return;
    ended_ = time();
    publish_progress();
  }

  const std::vector<PreparedModel>& models_;
  const LoadOptions& options_;
  Generator generator_;
  asio::io_context context_{1};
  asio::steady_timer send_timer_;
  asio::steady_timer overdue_timer_;
  asio::steady_timer deadline_timer_;
  std::vector<std::unique_ptr<Link>> links_;
  std::map<std::string, Owner> owners_;       // by address
  std::vector<Owner*> owner_of_;              // by model; null: unknown
  std::vector<std::deque<Awaited>> awaited_;  // by model, in the order of `until`
  std::size_t next_link_ = 0;
  std::size_t attempts_done_ = 0;
  steady_clock::time_point started_;
  Time ended_{};
  Time timer_set_for_ = kNever;
  bool send_posted_ = false;
  Phase phase_ = Phase::opening;
  std::uint64_t connections_lost_ = 0;
  std::uint64_t unexpected_replies_ = 0;
  mutable std::mutex published_mutex_;
  Progress published_;  // guarded by published_mutex_
};

// The parts and their threads. The calling thread watches.
class LoadRun {
 public:
  LoadRun(const std::vector<PreparedModel>& models, const LoadOptions& options)
      : options_(options) {
    const std::uint32_t threads = std::max(
        1U, std::min({options.threads, options.connections, options.generator.max_outstanding}));
    Generator::OnSettled on_settled;
    if (options.on_settled) {
      on_settled = [this](const RequestRecord& record) {
        const std::lock_guard lock(settled_mutex_);
        options_.on_settled(record);
      };
    }
    for (std::uint32_t i = 0; i < threads; ++i)
      parts_.push_back(std::make_unique<LoadPart>(models, options, Part{.number = i, .of = threads},
                                                  on_settled));
  }

  Result<LoadReport> run() {
    for (const auto& part : parts_) {
      if (const Status status = part->open(); !status.ok()) return status;
    }
    {
      const steady_clock::time_point started = steady_clock::now();
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < parts_.size(); ++i)
        threads.emplace_back([this, i, started] { run_part(i, started); });
      watch(started);
    }
    for (std::size_t i = 1; i < parts_.size(); ++i) parts_[0]->merge(*parts_[i]);
    LoadReport report = parts_[0]->report();
    report.threads = static_cast<std::uint32_t>(parts_.size());
    return report;
  }

 private:
  void run_part(std::size_t number, steady_clock::time_point started) {
    net::name_thread(fmt::format("load-{}", number));
    parts_[number]->run(started);
    const std::lock_guard lock(over_mutex_);
    ++parts_over_;
    over_.notify_one();
  }

  // Reports progress until all parts are over.
  void watch(steady_clock::time_point started) {
    std::unique_lock lock(over_mutex_);
    const auto all_over = [this] { return parts_over_ == parts_.size(); };
    if (!options_.on_progress) return over_.wait(lock, all_over);
    while (!over_.wait_for(lock, kProgressPeriod, all_over)) {
      lock.unlock();
      Progress sum;
      for (const auto& part : parts_) sum += part->progress();
      if (!options_.on_progress(sum, steady_clock::now() - started)) {
        for (const auto& part : parts_) part->end_sending();
      }
      lock.lock();
    }
  }

  const LoadOptions& options_;
  std::vector<std::unique_ptr<LoadPart>> parts_;
  std::mutex settled_mutex_;  // held during options_.on_settled
  std::mutex over_mutex_;
  std::condition_variable over_;
  std::size_t parts_over_ = 0;  // guarded by over_mutex_
};

}  // namespace

Result<LoadReport> run_load(const std::vector<PreparedModel>& models, const LoadOptions& options) {
  return LoadRun(models, options).run();
}

}  // namespace gpulet::load
