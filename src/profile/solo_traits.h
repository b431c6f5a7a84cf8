// What a profile says of batches that run alone, made ready for the models of interference. Refers
// to the profile's latency tables, which must outlive it. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/share.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

// Utilisation over batch and size: linear in the batch, linear in 1/size as latency is; at its ends
// it stays what it is there. A size is skipped where nothing was measured.
class UtilizationTable {
 public:
  struct Fractions {
    double l2 = 0;
    double dram = 0;
  };

  explicit UtilizationTable(const std::vector<Utilization>& samples);

  // Zeros where no sample was given.
  [[nodiscard]] Fractions at(std::uint32_t batch, Share share) const;

 private:
  struct Row {
    Share share;
    std::vector<std::uint32_t> batches;  // ascending
    std::vector<Fractions> fractions;    // beside batches
  };
  [[nodiscard]] static Fractions within_row(const Row& row, std::uint32_t batch);

  std::vector<Row> rows_;  // by ascending share
};

class SoloTraitsTable {
 public:
  explicit SoloTraitsTable(const Profile& profile);

  // True where every model of the profile has samples of utilisation.
  [[nodiscard]] bool has_utilization() const { return has_utilization_; }
  // Cells are numbered from 0: every measured batch of a model at every measured size of it.
  [[nodiscard]] std::size_t cells() const { return cells_.size(); }
  // BatchTraits::kUnknown for a stranger.
  [[nodiscard]] std::uint32_t number_of(std::string_view model) const;
  // Those of a stranger where the profile does not answer L(batch, share).
  [[nodiscard]] BatchTraits traits(std::string_view model, std::uint32_t batch, Share share) const;
  // Of exactly that batch, whether measured or not. Empty where L(batch, share) has no answer.
  [[nodiscard]] std::optional<SoloTraits> solo(std::string_view model, std::uint32_t batch,
                                               Share share) const;

 private:
  struct Model {
    std::uint32_t number = 0;
    std::uint32_t first_cell = 0;
    const LatencyTable* latency = nullptr;
    double least_ms = 0;
    UtilizationTable utilization;
    std::vector<std::uint32_t> batches;  // measured at any size, ascending
    std::vector<Share> sizes;            // measured, ascending
  };
  [[nodiscard]] static std::optional<SoloTraits> look_up(const Model& model, std::uint32_t batch,
                                                         Share share);

  std::map<std::string, Model, std::less<>> models_;
  std::vector<SoloTraits> cells_;  // by model, size, batch; without meaning where L has no answer
  bool has_utilization_ = true;
};

}  // namespace gpulet::profile
