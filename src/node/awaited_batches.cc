#include "node/awaited_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace gpulet::node {
namespace {

constexpr std::size_t kEndedKept = 256;  // a few for each gpulet of a node

std::size_t size_of(const std::vector<Bytes>& pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), std::size_t{0},
                         [](std::size_t sum, const Bytes& piece) { return sum + piece.size(); });
}

// A decoded message has one piece.
Bytes whole(const std::vector<Bytes>& pieces) { return pieces.empty() ? Bytes() : pieces.front(); }

std::size_t rows_of_entries(const Batch& batch) {
  return std::accumulate(batch.entries.begin(), batch.entries.end(), std::size_t{0},
                         [](std::size_t sum, const EntryRows& entry) { return sum + entry.count; });
}

Duration wait_for(const Batch& batch, std::size_t bytes) {
  const Duration enough =
      kRowsWithin + from_seconds(static_cast<double>(bytes) / kLeastRowBytesPerSecond);
  const Duration until_start = batch.start_within - std::min(batch.start_within / 2, kToStart);
  return std::clamp(until_start, Duration::zero(), enough);
}

}  // namespace

// ---- one batch

AwaitedBatches::Part* AwaitedBatches::Awaited::part_of(FrontendId entry) {
  const auto found = std::find_if(parts.begin(), parts.end(),
                                  [entry](const Part& part) { return part.entry == entry; });
  return found == parts.end() ? nullptr : &*found;
}

const AwaitedBatches::Part* AwaitedBatches::Awaited::part_of(FrontendId entry) const {
  const auto found = std::find_if(parts.begin(), parts.end(),
                                  [entry](const Part& part) { return part.entry == entry; });
  return found == parts.end() ? nullptr : &*found;
}

bool AwaitedBatches::Awaited::complete() const {
  return std::none_of(parts.begin(), parts.end(), [](const Part& part) { return part.awaited; });
}

bool AwaitedBatches::fits(const Part& part, const std::vector<std::uint32_t>& present,
                          std::size_t bytes, std::size_t row_bytes) {
  const bool ascending =
      std::adjacent_find(present.begin(), present.end(), std::greater_equal<>()) == present.end();
  return part.awaited && ascending && (present.empty() || present.back() < part.count) &&
         bytes == present.size() * row_bytes;
}

void AwaitedBatches::fill(Awaited& batch, Part& part, const std::vector<std::uint32_t>& present,
                          const Bytes& inputs) {
  if (!part.awaited) return;
  const bool right = fits(part, present, inputs.size(), batch.row_bytes);
  part.awaited = false;
  if (!right) return;
  for (std::uint32_t i = 0; i < part.count; ++i) batch.withdrawn[part.first + i] = true;
  for (std::size_t i = 0; i < present.size(); ++i) {
    const std::size_t place = part.first + present[i];
    batch.withdrawn[place] = false;
    batch.rows[place] = inputs.slice(i * batch.row_bytes, batch.row_bytes);
  }
}

// Memory that lacks some inputs is not used: they may still be arriving there.
bool AwaitedBatches::Awaited::in_place() const {
  const std::byte* at = arrived.memory.view().data();
  if (arrived.memory.size() != rows.size() * row_bytes) return false;
  return std::all_of(rows.begin(), rows.end(), [&](const std::optional<Bytes>& row) {
    const std::byte* const expected = std::exchange(at, at + row_bytes);
    return row && row->view().data() == expected;
  });
}

GatheredBatch AwaitedBatches::gather(FrontendId owner, Awaited&& batch) {
  if (!batch.in_place()) batch.arrived.memory = {};
  GatheredBatch gathered{owner, std::move(batch.arrived), {}, {}};
  gathered.arrived.batch.inputs.clear();
  for (std::uint32_t place = 0; place < batch.rows.size(); ++place) {
    if (batch.rows[place]) {
      gathered.arrived.batch.inputs.push_back(*std::move(batch.rows[place]));
    } else {
      (batch.withdrawn[place] ? gathered.withdrawn : gathered.missing).push_back(place);
    }
  }
  gathered.arrived.batch.count = static_cast<std::uint32_t>(gathered.arrived.batch.inputs.size());
  return gathered;
}

// ---- announcements

Status AwaitedBatches::check(FrontendId owner, const Batch& batch, std::size_t row_bytes) const {
  const std::size_t elsewhere = rows_of_entries(batch);
  if (elsewhere > batch.count) {
    return {StatusCode::invalid, fmt::format("a batch of {} requests has {} of other frontends",
                                             batch.count, elsewhere)};
  }
  const std::size_t expected = (batch.count - elsewhere) * row_bytes;
  if (const std::size_t bytes = size_of(batch.inputs); bytes != expected) {
    return {StatusCode::invalid,
            fmt::format("a batch of '{}' with {} requests of its sender must have {} input bytes; "
                        "had {}",
                        batch.model, batch.count - elsewhere, expected, bytes)};
  }
  if (batches_.contains({owner, batch.id})) {
    return {StatusCode::invalid,
            fmt::format("another batch of that number, {}, is awaited", batch.id.value)};
  }
  const auto of_gpulet = std::count_if(
      batches_.begin(), batches_.end(),
      [&batch](const auto& entry) { return entry.second.arrived.batch.gpulet == batch.gpulet; });
  if (static_cast<std::size_t>(of_gpulet) >= kMostAwaited) {
    return {StatusCode::overloaded,
            fmt::format("{} batches of the gpulet wait for their inputs already", kMostAwaited)};
  }
  return {};
}

void AwaitedBatches::add(FrontendId owner, BatchArrived arrived, std::size_t row_bytes,
                         const std::vector<std::optional<FrontendId>>& entries, Time now) {
  const Key key{owner, arrived.batch.id};
  Awaited& batch = batches_[key];
  const Batch& announced = arrived.batch;
  batch.row_bytes = row_bytes;
  batch.rows.resize(announced.count);
  batch.withdrawn.resize(announced.count);
  batch.until = now + wait_for(announced, announced.count * row_bytes);
  const std::size_t own = announced.count - rows_of_entries(announced);
  const Bytes inputs = whole(announced.inputs);
  for (std::size_t i = 0; i < own; ++i) batch.rows[i] = inputs.slice(i * row_bytes, row_bytes);
  auto first = static_cast<std::uint32_t>(own);
  for (std::size_t i = 0; i < announced.entries.size(); ++i) {
    const std::uint32_t count = announced.entries[i].count;
    const std::optional<FrontendId> entry = entries[i];
    // A second part of an entry would have no inputs: it sends them once.
    const bool sends = entry && batch.part_of(*entry) == nullptr;
    batch.parts.push_back({entry.value_or(FrontendId{}), first, count, sends});
    first += count;
  }
  batch.arrived = std::move(arrived);
  for (auto early = early_.begin(); early != early_.end();) {
    Part* const part = early->key == key ? batch.part_of(early->from) : nullptr;
    if (part != nullptr) fill(batch, *part, early->present, early->inputs);
    early = early->key == key ? early_.erase(early) : std::next(early);
  }
}

void AwaitedBatches::refuse(FrontendId owner, BatchId batch) {
  const Key key{owner, batch};
  if (batches_.contains(key)) return;
  early_.remove_if([&key](const Early& early) { return early.key == key; });
  note_ended(key);
}

void AwaitedBatches::note_ended(const Key& key) {
  ended_.push_back(key);
  if (ended_.size() > kEndedKept) ended_.pop_front();
}

bool AwaitedBatches::has_ended(const Key& key) const {
  return std::find(ended_.begin(), ended_.end(), key) != ended_.end();
}

// ---- inputs

bool AwaitedBatches::has_room_for_early(FrontendId from, std::size_t bytes) const {
  std::size_t held = 0;
  std::size_t messages = 0;
  for (const Early& early : early_) {
    if (early.from != from) continue;
    held += early.inputs.size();
    ++messages;
  }
  return messages < kMostEarlyRows && bytes <= kMostEarlyBytes && held <= kMostEarlyBytes - bytes;
}

bool AwaitedBatches::wants(FrontendId from, FrontendId owner, const Rows& rows,
                           std::size_t bytes) const {
  const Key key{owner, rows.batch};
  const auto found = batches_.find(key);
  if (found == batches_.end()) return !has_ended(key) && has_room_for_early(from, bytes);
  const Part* const part = found->second.part_of(from);
  return part != nullptr && fits(*part, rows.present, bytes, found->second.row_bytes);
}

MutableBytes AwaitedBatches::place_of(FrontendId from, FrontendId owner, const Rows& rows) const {
  const auto found = batches_.find({owner, rows.batch});
  if (found == batches_.end() || rows.present.empty()) return {};
  const Awaited& batch = found->second;
  const Part* const part = batch.part_of(from);
  const std::size_t count = rows.present.size();
  // A batch that runs without some of its requests has another layout.
  if (part == nullptr || count != part->count || batch.arrived.memory.size() == 0) return {};
  return batch.arrived.memory.slice(part->first * batch.row_bytes, count * batch.row_bytes);
}

void AwaitedBatches::take(FrontendId from, FrontendId owner, const Rows& rows, Time now) {
  const Key key{owner, rows.batch};
  const auto found = batches_.find(key);
  if (found != batches_.end()) {
    if (Part* const part = found->second.part_of(from))
      fill(found->second, *part, rows.present, whole(rows.inputs));
    return;
  }
  const bool twice = std::any_of(early_.begin(), early_.end(), [&](const Early& early) {
    return early.from == from && early.key == key;
  });
  const Bytes inputs = whole(rows.inputs);
  if (twice || has_ended(key) || !has_room_for_early(from, inputs.size())) return;
  early_.push_back({from, key, rows.present, inputs, now + kEarlyFor});
}

// ---- connections

void AwaitedBatches::disconnected(FrontendId frontend) {
  early_.remove_if([frontend](const Early& early) {
    return early.from == frontend || early.key.first == frontend;
  });
  std::erase_if(batches_, [frontend](const auto& one) { return one.first.first == frontend; });
  for (auto& [key, batch] : batches_) {
    for (Part& part : batch.parts) {
      if (part.entry == frontend) part.awaited = false;
    }
  }
}

// ---- time

std::vector<GatheredBatch> AwaitedBatches::take_ready(Time now) {
  while (!early_.empty() && early_.front().until <= now) early_.pop_front();
  std::vector<GatheredBatch> ready;
  for (auto one = batches_.begin(); one != batches_.end();) {
    if (!one->second.complete() && now < one->second.until) {
      ++one;
      continue;
    }
    note_ended(one->first);
    ready.push_back(gather(one->first.first, std::move(one->second)));
    one = batches_.erase(one);
  }
  return ready;
}

Time AwaitedBatches::next() const {
  Time next = early_.empty() ? kNever : early_.front().until;
  for (const auto& [key, batch] : batches_) next = std::min(next, batch.until);
  return next;
}

}  // namespace gpulet::node
