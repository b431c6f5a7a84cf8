#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "gpulet/base/percentile.h"
#include "gpulet/load/client.h"

namespace gpulet::load {

std::uint32_t share_of(std::uint32_t count, const Part& part, std::size_t first) {
  const std::size_t turn = (part.number + part.of - first % part.of) % part.of;
  return count / part.of + (turn < count % part.of ? 1 : 0);
}

namespace {

// A part has a random stream of its own; the first one that of the whole.
std::uint64_t seed_of(const Part& part, std::uint64_t seed) {
  return part.number == 0 ? seed : stream_seed(seed, fmt::format("part {}", part.number));
}

}  // namespace

ArrivalProcess::ArrivalProcess(config::Arrivals kind, double rate, std::uint64_t seed,
                               const Part& part)
    : kind_(kind),
      rate_(kind == config::Arrivals::poisson ? rate / part.of : rate),
      random_(kind == config::Arrivals::poisson ? seed_of(part, seed) : seed),
      arrivals_(part.number),
      stride_(part.of) {
  if (kind == config::Arrivals::closed)
    throw std::invalid_argument("a closed loop has no arrival schedule");
  if (!(rate > 0) || !std::isfinite(rate)) {
    throw std::invalid_argument("the rate of an arrival process must be above 0; was " +
                                std::to_string(rate));
  }
  phase_s_ = random_.uniform() / rate_;
}

ArrivalProcess::ArrivalProcess(const config::Trace& trace, const std::string& target, double rate,
                               std::uint64_t seed, const Part& part)
    : kind_(config::Arrivals::poisson), rate_(rate), random_(seed), arrivals_(0), stride_(1) {
  if (trace.arrivals.empty()) {
    traced_.emplace(trace, target, rate, seed_of(part, seed), 1.0 / part.of);
  } else {
    traced_.emplace(trace, target, rate, seed);
    skipped_ = part.number;
    stride_ = part.of;
  }
}

Time ArrivalProcess::next() {
  if (traced_) {
    for (; skipped_ > 0; --skipped_) (void)traced_->next_s();
    skipped_ = stride_ - 1;
    const double at_s = traced_->next_s();
    return std::isinf(at_s) ? kNever : Time(from_seconds(at_s));
  }
  if (kind_ == config::Arrivals::uniform) {
    const auto arrival = static_cast<double>(arrivals_);
    arrivals_ += stride_;
    return Time(from_seconds(phase_s_ + arrival / rate_));
  }
  last_s_ += random_.exponential(1 / rate_);
  return Time(from_seconds(last_s_));
}

double violation_of(std::uint64_t late, std::uint64_t dropped, std::uint64_t errors,
                    std::uint64_t offered) {
  if (offered == 0) return 0;
  return static_cast<double>(late + dropped + errors) / static_cast<double>(offered);
}

Tally::Tally(std::string name, Duration slo, bool labelled) : slo_(slo), labelled_(labelled) {
  counts_.name = std::move(name);
  counts_.slo_ms = to_ms(slo);
}

void Tally::add(const RequestRecord& record) {
  ++counts_.offered;
  if (record.status.ok()) {
    ++counts_.served;
    latencies_ms_.push_back(to_ms(record.latency()));
    if (record.latency() > slo_) ++counts_.late;
    if (record.correct.value_or(false)) ++correct_;
    return;
  }
  const StatusCode code = record.status.code();
  ModelRow::Reason& reason = counts_.reasons[code];
  if (reason.count++ == 0) reason.first_message = record.status.message();
  const bool dropped =
      record.refused_by_server && (code == StatusCode::too_late || code == StatusCode::overloaded);
  ++(dropped ? counts_.dropped : counts_.errors);
  if (!record.sent) ++counts_.unsent;
}

void Tally::merge(const Tally& other) {
  counts_.offered += other.counts_.offered;
  counts_.served += other.counts_.served;
  counts_.dropped += other.counts_.dropped;
  counts_.late += other.counts_.late;
  counts_.errors += other.counts_.errors;
  counts_.unsent += other.counts_.unsent;
  correct_ += other.correct_;
  latencies_ms_.insert(latencies_ms_.end(), other.latencies_ms_.begin(), other.latencies_ms_.end());
  for (const auto& [code, reason] : other.counts_.reasons) {
    ModelRow::Reason& own = counts_.reasons[code];
    if (own.count == 0) own.first_message = reason.first_message;
    own.count += reason.count;
  }
}

ModelRow Tally::row() const {
  ModelRow row = counts_;
  row.p50_ms = percentile(latencies_ms_, 50);
  row.p99_ms = percentile(latencies_ms_, 99);
  row.violation = violation_of(row.late, row.dropped, row.errors, row.offered);
  if (labelled_ && row.served > 0)
    row.accuracy = static_cast<double>(correct_) / static_cast<double>(row.served);
  return row;
}

Progress& Progress::operator+=(const Progress& other) {
  offered += other.offered;
  served += other.served;
  dropped += other.dropped;
  late += other.late;
  errors += other.errors;
  outstanding += other.outstanding;
  return *this;
}

Generator::Generator(const std::vector<ModelLoad>& models, const GeneratorOptions& options,
                     OnSettled on_settled)
    : options_(options), on_settled_(std::move(on_settled)) {
  const Part& part = options.part;
  for (const ModelLoad& model : models) {
    Stream stream{.model = model,
                  .arrivals = {},
                  .free_slots = {},
                  .first_input = model.inputs * part.number / part.of,
                  .max_outstanding = share_of(options.max_outstanding, part),
                  .tally = {model.name, model.slo, model.labelled}};
    if (model.arrivals == config::Arrivals::closed) {
      // Loops of one request for many models must not all be in the first part.
      stream.free_slots.assign(share_of(model.concurrency, part, streams_.size()), Time{});
    } else if (options.trace != nullptr) {
      stream.arrivals.emplace(*options.trace, model.name, model.rate,
                              stream_seed(options.seed, model.name), part);
      advance(stream);
    } else if (model.rate > 0) {
      stream.arrivals.emplace(model.arrivals, model.rate, stream_seed(options.seed, model.name),
                              part);
      advance(stream);
    }
    streams_.push_back(std::move(stream));
  }
}

void Generator::advance(Stream& stream) {
  if (stream.arrivals) {
    stream.due = stream.arrivals->next();
  } else {
    std::pop_heap(stream.free_slots.begin(), stream.free_slots.end(), std::greater<>());
    stream.free_slots.pop_back();
  }
}

Time Generator::due(const Stream& stream) const {
  const Time due = stream.free_slots.empty() ? stream.due : stream.free_slots.front();
  return due < Time(options_.duration) ? due : kNever;
}

Time Generator::next_due() const {
  Time earliest = kNever;
  for (const Stream& stream : streams_) earliest = std::min(earliest, due(stream));
  return earliest;
}

std::optional<DueRequest> Generator::next(Time now) {
  while (true) {
    const auto stream =
        std::min_element(streams_.begin(), streams_.end(),
                         [this](const Stream& a, const Stream& b) { return due(a) < due(b); });
    if (stream == streams_.end() || due(*stream) > now || due(*stream) == kNever)
      return std::nullopt;
    DueRequest request{.tag = ++last_tag_,
                       .model = static_cast<std::size_t>(stream - streams_.begin()),
                       .input = (stream->first_input + stream->offered) % stream->model.inputs,
                       .intended = stream->arrivals ? stream->due : now};
    ++stream->offered;
    advance(*stream);
    if (stream->outstanding >= stream->max_outstanding) {
      limit_hit_ = true;
      RequestRecord record{.model = request.model, .intended = request.intended, .settled = now};
      record.status = Status(StatusCode::overloaded,
                             fmt::format("not sent: {} requests of the model were in flight",
                                         stream->max_outstanding));
      settle(record);
      continue;
    }
    if (stream->arrivals) lags_ms_.push_back(to_ms(now - request.intended));
    ++stream->outstanding;
    in_flight_.emplace(request.tag, InFlight{request, now});
    return request;
  }
}

std::optional<Generator::InFlight> Generator::take(std::uint64_t tag, bool served, Time now) {
  const auto found = in_flight_.find(tag);
  if (found == in_flight_.end()) return std::nullopt;
  InFlight taken = found->second;
  in_flight_.erase(found);
  Stream& stream = streams_[taken.request.model];
  --stream.outstanding;
  if (stream.model.arrivals == config::Arrivals::closed) {
    stream.free_slots.push_back(served ? now : now + kPauseAfterFailure);
    std::push_heap(stream.free_slots.begin(), stream.free_slots.end(), std::greater<>());
  }
  return taken;
}

bool Generator::complete(std::uint64_t tag, const Reply& reply, Time now) {
  const std::optional<InFlight> taken = take(tag, reply.status.ok(), now);
  if (!taken) return false;
  settle({.model = taken->request.model,
          .intended = taken->request.intended,
          .sent = taken->sent,
          .settled = now,
          .status = reply.status,
          .refused_by_server = !reply.status.ok(),
          .batch_size = reply.batch_size,
          .queued = reply.queued,
          .executed = reply.executed,
          .correct = reply.correct});
  return true;
}

bool Generator::fail(std::uint64_t tag, Status status, bool was_sent, Time now) {
  const std::optional<InFlight> taken = take(tag, false, now);
  if (!taken) return false;
  RequestRecord record{
      .model = taken->request.model, .intended = taken->request.intended, .settled = now};
  if (was_sent) record.sent = taken->sent;
  record.status = std::move(status);
  settle(record);
  return true;
}

void Generator::fail_all(Time now) {
  std::vector<std::uint64_t> tags;
  tags.reserve(in_flight_.size());
  for (const auto& [tag, request] : in_flight_) tags.push_back(tag);
  std::sort(tags.begin(), tags.end());
  for (const std::uint64_t tag : tags) {
    (void)fail(tag, Status(StatusCode::timeout, "no reply before the end of the run"), true, now);
  }
}

std::optional<DueRequest> Generator::in_flight(std::uint64_t tag) const {
  const auto found = in_flight_.find(tag);
  if (found == in_flight_.end()) return std::nullopt;
  return found->second.request;
}

void Generator::settle(const RequestRecord& record) {
  Tally& tally = streams_[record.model].tally;
  tally.add(record);
  if (on_settled_) on_settled_(record);
}

Progress Generator::progress() const {
  Progress progress;
  for (const Stream& stream : streams_) {
    progress.offered += stream.offered;
    progress.served += stream.tally.counts().served;
    progress.dropped += stream.tally.counts().dropped;
    progress.late += stream.tally.counts().late;
    progress.errors += stream.tally.counts().errors;
  }
  progress.outstanding = in_flight_.size();
  return progress;
}

std::vector<ModelRow> Generator::rows() const {
  std::vector<ModelRow> rows;
  for (const Stream& stream : streams_) rows.push_back(stream.tally.row());
  return rows;
}

void Generator::merge(const Generator& other) {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    streams_[i].offered += other.streams_[i].offered;
    streams_[i].tally.merge(other.streams_[i].tally);
  }
  lags_ms_.insert(lags_ms_.end(), other.lags_ms_.begin(), other.lags_ms_.end());
  limit_hit_ = limit_hit_ || other.limit_hit_;
}

SenderLag Generator::sender_lag() const {
  return {percentile(lags_ms_, 99), percentile(lags_ms_, 100)};
}

}  // namespace gpulet::load
