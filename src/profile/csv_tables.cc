#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpulet/config/readers.h"
#include "profile/store_files.h"

namespace gpulet::profile {
namespace {

using config::CsvReader;

constexpr std::uint32_t kLargestBatch = 1U << 20U;
// Processes that may share a gpulet: more than any device allows.
constexpr std::uint32_t kMostProcesses = 64;

// The first line and the value of each cell, which may be repeated with the same value.
template <typename Cell, typename Value>
using SeenCells = std::map<Cell, std::pair<std::size_t, Value>>;

// True where the cell is new. Records an error where it had another value.
template <typename Cell, typename Value>
bool add(SeenCells<Cell, Value>& seen, CsvReader& reader, const Cell& cell, const Value& value) {
  const auto [entry, fresh] = seen.try_emplace(cell, reader.line(), value);
  if (!fresh && entry->second.second != value) {
    reader.fail(fmt::format("line {} has different values for the same cell", entry->second.first),
                "keep one of the two lines");
  }
  return fresh;
}

std::uint32_t read_batch(CsvReader& reader, std::size_t column) {
  return reader.count(column, 1, kLargestBatch);
}

Share read_share(CsvReader& reader, std::size_t column, const partition::MigGeometry& mig) {
  if (const auto slices = partition::parse_mig_profile(reader.text(column))) {
    if (mig.find(*slices) != nullptr) return mig.share_of(*slices);
    std::string known;
    for (const partition::MigProfile& profile : mig.profiles())
      known += partition::mig_profile_name(profile.slices) + ", ";
    reader.fail(fmt::format("a device of the geometry {} has no instance {}", mig.name(),
                            partition::mig_profile_name(*slices)),
                fmt::format("write one of {}or a percentage", known));
    return Share{100};
  }
  return Share{static_cast<int>(reader.count(column, 1, 100))};
}

Doubt read_doubt(CsvReader& reader, std::size_t column) {
  if (reader.empty(column)) return Doubt::none;
  const std::string_view text = reader.text(column);
  constexpr std::array kDoubts{Doubt::busy, Doubt::unsteady, Doubt::neighbours};
  const auto* const found = std::find_if(kDoubts.begin(), kDoubts.end(),
                                         [&text](Doubt doubt) { return to_string(doubt) == text; });
  if (found != kDoubts.end()) return *found;
  reader.fail(fmt::format("\"{}\" is not a known doubt", text),
              "write busy, unsteady or neighbours, or leave it empty");
  return Doubt::none;
}

std::string cell_text(const std::string& model, std::uint32_t batch, Share share) {
  return fmt::format("{},{},{}", model, batch, share.percent);
}

}  // namespace

Result<LatencyRows> read_latency(const std::filesystem::path& file,
                                 const partition::MigGeometry& mig) {
  GPULET_TRY(CsvReader reader, CsvReader::read_file(file));
  const auto columns = reader.require_columns({"model", "batch", "partition", "latency_ms"});
  const auto p99_column = reader.find_column("p99_ms");
  const auto cv_column = reader.find_column("cv");
  const auto doubt_column = reader.find_column("doubt");
  const auto processes_column = reader.find_column("processes");
  LatencyRows rows;
  SeenCells<std::tuple<std::string, std::uint32_t, Share, std::uint32_t>, double> seen;
  while (reader.next()) {
    const std::string model = reader.name(columns[0]);
    LatencySample sample{.batch = read_batch(reader, columns[1]),
                         .share = read_share(reader, columns[2], mig),
                         .latency_ms = reader.number(columns[3], config::above(0))};
    if (p99_column && !reader.empty(*p99_column))
      sample.p99_ms = reader.number(*p99_column, config::above(0));
    if (cv_column && !reader.empty(*cv_column))
      sample.cv = reader.number(*cv_column, config::at_least(0));
    if (doubt_column) sample.doubt = read_doubt(reader, *doubt_column);
    if (processes_column && !reader.empty(*processes_column))
      sample.processes = reader.count(*processes_column, 1, kMostProcesses);
    if (add(seen, reader, {model, sample.batch, sample.share, sample.processes}, sample.latency_ms))
      rows[model].push_back(sample);
  }
  if (rows.empty())
    reader.fail("no row of measurements follows", "measure at least one batch of one model");
  if (!reader.status().ok()) return reader.status();
  return rows;
}

Result<UtilizationRows> read_utilization(const std::filesystem::path& file,
                                         const partition::MigGeometry& mig) {
  GPULET_TRY(CsvReader reader, CsvReader::read_file(file));
  const auto columns =
      reader.require_columns({"model", "batch", "partition", "l2_util", "dram_util"});
  UtilizationRows rows;
  SeenCells<std::tuple<std::string, std::uint32_t, Share>, std::pair<double, double>> seen;
  while (reader.next()) {
    const std::string model = reader.name(columns[0]);
    const Utilization sample{.batch = read_batch(reader, columns[1]),
                             .share = read_share(reader, columns[2], mig),
                             .l2 = reader.number(columns[3], config::between(0, 1)),
                             .dram = reader.number(columns[4], config::between(0, 1))};
    if (add(seen, reader, {model, sample.batch, sample.share}, {sample.l2, sample.dram})) {
      rows[model].push_back(sample);
    }
  }
  if (!reader.status().ok()) return reader.status();
  return rows;
}

Result<std::vector<PairSample>> read_interference(const std::filesystem::path& file,
                                                  const partition::MigGeometry& mig) {
  GPULET_TRY(CsvReader reader, CsvReader::read_file(file));
  const auto columns = reader.require_columns({"model", "batch", "partition", "other_model",
                                               "other_batch", "other_partition", "latency_ms"});
  std::vector<PairSample> pairs;
  using Cell = std::tuple<std::string, std::uint32_t, Share, std::string, std::uint32_t, Share>;
  SeenCells<Cell, double> seen;
  while (reader.next()) {
    PairSample pair{.model = reader.name(columns[0]),
                    .batch = read_batch(reader, columns[1]),
                    .share = read_share(reader, columns[2], mig),
                    .other_model = reader.name(columns[3]),
                    .other_batch = read_batch(reader, columns[4]),
                    .other_share = read_share(reader, columns[5], mig),
                    .latency_ms = reader.number(columns[6], config::above(0))};
    const int total = pair.share.percent + pair.other_share.percent;
    if (total > 100) {
      reader.fail(fmt::format("the two partitions add up to {} %", total),
                  "keep them within 100 %");
    }
    const Cell cell{pair.model,       pair.batch,       pair.share,
                    pair.other_model, pair.other_batch, pair.other_share};
    if (add(seen, reader, cell, pair.latency_ms)) pairs.push_back(std::move(pair));
  }
  if (!reader.status().ok()) return reader.status();
  return pairs;
}

std::string latency_text(const Profile& profile) {
  std::vector<std::pair<std::string, std::vector<LatencySample>>> rows;
  for (const auto& [name, model] : profile.models) {
    std::vector<LatencySample>& samples = rows.emplace_back(name, model.latency.samples()).second;
    for (const auto& [processes, table] : model.shared_latency)
      samples.insert(samples.end(), table.samples().begin(), table.samples().end());
  }
  const auto any_sample = [&rows](auto has) {
    return std::any_of(rows.begin(), rows.end(), [&has](const auto& entry) {
      return std::any_of(entry.second.begin(), entry.second.end(), has);
    });
  };
  const bool has_p99 = any_sample([](const LatencySample& s) { return s.p99_ms.has_value(); });
  const bool has_cv = any_sample([](const LatencySample& s) { return s.cv.has_value(); });
  const bool has_doubt = any_sample([](const LatencySample& s) { return s.doubt != Doubt::none; });
  const bool has_processes =
      any_sample([](const LatencySample& sample) { return sample.processes != 1; });
  std::string text = "model,batch,partition,latency_ms";
  if (has_p99) text += ",p99_ms";
  if (has_cv) text += ",cv";
  if (has_doubt) text += ",doubt";
  if (has_processes) text += ",processes";
  text += '\n';
  for (const auto& [name, samples] : rows) {
    for (const LatencySample& sample : samples) {
      text +=
          cell_text(name, sample.batch, sample.share) + ',' + config::to_text(sample.latency_ms);
      if (has_p99) text += ',' + (sample.p99_ms ? config::to_text(*sample.p99_ms) : std::string());
      if (has_cv) text += ',' + (sample.cv ? config::to_text(*sample.cv) : std::string());
      if (has_doubt) text.append(",").append(to_string(sample.doubt));
      if (has_processes) text.append(",").append(std::to_string(sample.processes));
      text += '\n';
    }
  }
  return text;
}

std::string utilization_text(const Profile& profile) {
  std::string text = "model,batch,partition,l2_util,dram_util\n";
  for (const auto& [name, model] : profile.models) {
    for (const Utilization& sample : model.utilization) {
      text += fmt::format("{},{},{}\n", cell_text(name, sample.batch, sample.share),
                          config::to_text(sample.l2), config::to_text(sample.dram));
    }
  }
  return text;
}

std::string interference_text(const Profile& profile) {
  std::string text = "model,batch,partition,other_model,other_batch,other_partition,latency_ms\n";
  for (const PairSample& pair : profile.pairs) {
    text += fmt::format("{},{},{}\n", cell_text(pair.model, pair.batch, pair.share),
                        cell_text(pair.other_model, pair.other_batch, pair.other_share),
                        config::to_text(pair.latency_ms));
  }
  return text;
}

}  // namespace gpulet::profile
