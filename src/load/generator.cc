#include "gpulet/load/generator.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace gpulet::load {

Generator::Generator(const std::vector<ModelLoad>& models, const GeneratorOptions& options,
                     OnSettled on_settled)
    : options_(options), on_settled_(std::move(on_settled)) {
  for (const ModelLoad& model : models) {
    Stream stream{.model = model,
                  .arrivals = {},
                  .free_slots = {},
                  .tally = {model.name, model.slo, model.labelled}};
    if (model.arrivals == config::Arrivals::closed) {
      stream.free_slots.assign(model.concurrency, Time{});
    } else if (model.rate > 0) {
      stream.arrivals.emplace(model.arrivals, model.rate, stream_seed(options.seed, model.name));
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
                       .input = stream->given % stream->model.inputs,
                       .intended = stream->arrivals ? stream->due : now};
    ++stream->given;
    advance(*stream);
    if (stream->outstanding >= options_.max_outstanding) {
      limit_hit_ = true;
      RequestRecord record{.model = request.model, .intended = request.intended, .settled = now};
      record.status =
          Status(StatusCode::overloaded, "not sent: " + std::to_string(options_.max_outstanding) +
                                             " requests of the model were waiting for answers");
      settle(record);
      continue;
    }
    if (stream->arrivals) lag_ms_.add(to_ms(now - request.intended));
    ++stream->outstanding;
    under_way_.emplace(request.tag, UnderWay{request, now});
    return request;
  }
}

std::optional<Generator::UnderWay> Generator::take(std::uint64_t tag, bool served, Time now) {
  const auto found = under_way_.find(tag);
  if (found == under_way_.end()) return std::nullopt;
  UnderWay taken = found->second;
  under_way_.erase(found);
  Stream& stream = streams_[taken.request.model];
  --stream.outstanding;
  if (stream.model.arrivals == config::Arrivals::closed) {
    stream.free_slots.push_back(served ? now : now + kPauseAfterFailure);
    std::push_heap(stream.free_slots.begin(), stream.free_slots.end(), std::greater<>());
  }
  return taken;
}

bool Generator::answered(std::uint64_t tag, const Answer& answer, Time now) {
  const std::optional<UnderWay> taken = take(tag, answer.status.ok(), now);
  if (!taken) return false;
  settle({.model = taken->request.model,
          .intended = taken->request.intended,
          .sent = taken->sent,
          .settled = now,
          .status = answer.status,
          .refused_by_server = !answer.status.ok(),
          .batch_size = answer.batch_size,
          .queued = answer.queued,
          .executed = answer.executed,
          .correct = answer.correct});
  return true;
}

bool Generator::failed(std::uint64_t tag, Status status, bool was_sent, Time now) {
  const std::optional<UnderWay> taken = take(tag, false, now);
  if (!taken) return false;
  RequestRecord record{
      .model = taken->request.model, .intended = taken->request.intended, .settled = now};
  if (was_sent) record.sent = taken->sent;
  record.status = std::move(status);
  settle(record);
  return true;
}

void Generator::give_up(Time now) {
  std::vector<std::uint64_t> tags;
  tags.reserve(under_way_.size());
  for (const auto& [tag, request] : under_way_) tags.push_back(tag);
  std::sort(tags.begin(), tags.end());
  for (const std::uint64_t tag : tags) {
    (void)failed(tag, Status(StatusCode::timeout, "no answer came before the run's last deadline"),
                 true, now);
  }
}

std::optional<DueRequest> Generator::under_way(std::uint64_t tag) const {
  const auto found = under_way_.find(tag);
  if (found == under_way_.end()) return std::nullopt;
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
    progress.offered += stream.given;
    progress.served += stream.tally.counts().served;
    progress.dropped += stream.tally.counts().dropped;
    progress.late += stream.tally.counts().late;
    progress.errors += stream.tally.counts().errors;
  }
  progress.outstanding = under_way_.size();
  return progress;
}

std::vector<ModelRow> Generator::rows() const {
  std::vector<ModelRow> rows;
  for (const Stream& stream : streams_) rows.push_back(stream.tally.row());
  return rows;
}

SenderLag Generator::sender_lag() const { return {lag_ms_.percentile(99), lag_ms_.max()}; }

}  // namespace gpulet::load
