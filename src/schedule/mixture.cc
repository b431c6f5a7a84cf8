#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "gpulet/schedule/reconcile.h"
#include "schedule/device_room.h"

namespace gpulet::schedule {
namespace {

// The rounds in which a group of blocks may grow. Short chains are found first, for all blocks.
constexpr std::array<std::size_t, 3> kRounds = {1, 2, 64};
// The work of one call, in blocks tried: enough for all pairs.
constexpr std::size_t kLeastWork = 1024;
constexpr std::size_t kWorkForEach = 4;
constexpr double kRounding = 1e-9;

// A gpulet in the mixture.
struct Piece {
  GpuletId id;
  const PlannedGpulet* part = nullptr;
  bool old = false;  // the plan to come has another part for it, or none
};
using Pieces = std::vector<Piece>;

// Wanted gpulets that begin together: one, or those of a MIG instance.
struct Block {
  std::vector<GpuletId> ids;
  bool ready = true;
  bool begun = false;
};

struct Served {
  double rate = 0;
  int gpulets = 0;

  void add(double more, int sign) {
    rate += sign * more;
    gpulets += sign;
  }
};

struct Model {
  Served served;                    // in the mixture
  std::vector<std::size_t> blocks;  // that did not begin yet
  double least = 0;
  bool needed = false;    // the plan to come serves it
  bool complete = true;   // MixtureInput::incomplete does not have it
  bool together = false;  // MixtureInput::together has it
};

bool same_instance(const PlannedGpulet& a, const PlannedGpulet& b) {
  return a.instance && a.instance == b.instance && a.device == b.device;
}

class Mixing;

// A mixture that is tried: the one in force with a group of blocks.
class Trial {
 public:
  Trial(const Mixing& mixing, const std::set<std::size_t>& group);

  // Ends old gpulets until all rules hold. Returns the blocks that must begin as well, none where
  // the trial has succeeded. Empty: it failed.
  std::optional<std::vector<std::size_t>> settle();

  [[nodiscard]] const std::map<DeviceKey, Pieces>& devices() const { return devices_; }
  [[nodiscard]] const std::vector<GpuletId>& ended() const { return ended_; }

 private:
  Pieces& on(const DeviceKey& device);
  Served& served(std::string_view model);
  void count(const PlannedGpulet& part, int sign);
  void begin(const Block& block);
  // The old gpulets that end with this one: those of its MIG instance.
  [[nodiscard]] Pieces ending_with(const Piece& piece);
  // What each model of these gpulets has without them.
  [[nodiscard]] std::map<std::string_view, Served> without(const Pieces& pieces);
  [[nodiscard]] bool enough(std::string_view model, const Served& served) const;
  bool end_if_possible(const Piece& piece);
  // Ready blocks with which the gpulet could end. Empty: there are none.
  [[nodiscard]] std::vector<std::size_t> helpers_for(const Piece& piece);
  // Ready blocks that give the model what it lacks. Returns whether they do.
  bool help(std::string_view model, Served served, const DeviceKey& near,
            std::vector<std::size_t>& helpers) const;
  // Ends what must end in any case. As settle().
  std::optional<std::vector<std::size_t>> end_replaced();
  // Whether the device holds its gpulets other than these.
  bool fits(const DeviceRoom& room, const DeviceKey& key, const Pieces& without);
  // As settle(), for one device.
  std::optional<std::vector<std::size_t>> make_room(const DeviceKey& device);

  const Mixing& mixing_;
  const std::set<std::size_t>& group_;
  std::map<DeviceKey, Pieces> devices_;
  std::unordered_map<std::string_view, Served> served_;
  std::set<std::string_view> reduced_;  // models of which a gpulet that stays serves less
  std::vector<GpuletId> ended_;
};

class Mixing {
 public:
  explicit Mixing(const MixtureInput& input) : input_(input) {
    for (const Device& device : input.cluster.devices) rooms_.emplace(device.key, room_of(device));
    for (const auto& [id, part] : input.serving) {
      const auto to = input.wanted.find(id);
      const bool old = to == input.wanted.end() || *to->second != part;
      devices_[part.device].push_back({id, &part, old});
      for (const Assignment& one : part.assignments) models_[one.model].served.add(one.rate, 1);
    }
    add_blocks();
    for (const std::string& model : input.incomplete) models_[model].complete = false;
    for (const std::string& model : input.together) models_[model].together = true;
    for (const auto& [model, rate] : input.least_rates) models_[model].least = rate;
  }

  MixtureChange run() {
    if (is_whole()) return whole();
    for (std::size_t at = 0; at < kRounds.size();) {
      const bool changed = pass(kRounds[at]);
      at = changed ? 0 : at + 1;
      change_.unfinished = changed && tired();
      if (change_.unfinished) break;
    }
    std::sort(change_.begin.begin(), change_.begin.end());
    std::sort(change_.end.begin(), change_.end.end());
    return std::move(change_);
  }

 private:
  friend class Trial;

  DeviceRoom room_of(const Device& device) const {
    const auto profile = input_.profiles.find(device.type);
    const profile::InterferenceModel* slowdowns = nullptr;
    if (input_.interference != nullptr) {
      const auto found = input_.interference->find(device.type);
      if (found != input_.interference->end()) slowdowns = &found->second;
    }
    return {device, profile == input_.profiles.end() ? nullptr : &profile->second, slowdowns};
  }

  void add_blocks() {
    std::map<std::pair<DeviceKey, partition::MigInstance>, std::size_t> of_instance;
    for (const auto& [id, wanted] : input_.wanted) {
      const PlannedGpulet& part = *wanted;
      for (const Assignment& one : part.assignments) models_[one.model].needed = true;
      const auto now = input_.serving.find(id);
      if (now != input_.serving.end() && now->second == part) continue;
      std::size_t at = blocks_.size();
      if (part.instance)
        at = of_instance.emplace(std::pair(part.device, *part.instance), at).first->second;
      if (at == blocks_.size()) blocks_.emplace_back();
      Block& block = blocks_[at];
      block.ids.push_back(id);
      block.ready = block.ready && input_.ready.contains(id);
      block_of_[id] = at;
      for (const Assignment& one : part.assignments) {
        std::vector<std::size_t>& blocks = models_[one.model].blocks;
        if (blocks.empty() || blocks.back() != at) blocks.push_back(at);
      }
    }
  }

  [[nodiscard]] bool is_whole() const {
    return input_.incomplete.empty() &&
           std::all_of(blocks_.begin(), blocks_.end(), [](const Block& one) { return one.ready; });
  }

  [[nodiscard]] MixtureChange whole() const {
    MixtureChange change;
    for (const auto& [id, block] : block_of_) change.begin.push_back(id);
    for (const auto& [id, part] : input_.serving) {
      if (!input_.wanted.contains(id)) change.end.push_back(id);
    }
    return change;
  }

  [[nodiscard]] bool tired() const { return work_ >= kLeastWork + kWorkForEach * blocks_.size(); }

  // Tries every ready block once. Blocks without others are tried in any case.
  bool pass(std::size_t rounds) {
    bool changed = false;
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      if (rounds > 1 && tired()) break;
      if (blocks_[block].ready && !blocks_[block].begun && attempt(block, rounds)) changed = true;
    }
    return end_unneeded() || changed;
  }

  bool attempt(std::size_t block, std::size_t rounds) {
    std::set<std::size_t> group{block};
    for (std::size_t round = 0; round < rounds; ++round) {
      work_ += group.size();
      Trial trial(*this, group);
      const auto more = trial.settle();
      if (!more) return false;
      if (more->empty()) {
        commit(trial, group);
        return true;
      }
      group.insert(more->begin(), more->end());
    }
    return false;
  }

  void commit(const Trial& trial, const std::set<std::size_t>& group) {
    for (const std::size_t at : group) {
      blocks_[at].begun = true;
      for (const GpuletId id : blocks_[at].ids) {
        change_.begin.push_back(id);
        if (const auto old = input_.serving.find(id); old != input_.serving.end())
          count(old->second, -1);
        count(*input_.wanted.at(id), 1);
        for (const Assignment& one : input_.wanted.at(id)->assignments)
          std::erase(models_.at(one.model).blocks, at);
      }
    }
    for (const GpuletId id : trial.ended()) note_end(id);
    for (const auto& [key, pieces] : trial.devices()) devices_[key] = pieces;
  }

  void note_end(GpuletId id) {
    change_.end.push_back(id);
    count(input_.serving.at(id), -1);
  }

  void count(const PlannedGpulet& part, int sign) {
    for (const Assignment& one : part.assignments) models_.at(one.model).served.add(one.rate, sign);
  }

  // An old gpulet whose models have all their wanted gpulets.
  [[nodiscard]] bool unneeded(const Piece& piece) const {
    const std::vector<Assignment>& held = piece.part->assignments;
    return piece.old && !input_.wanted.contains(piece.id) &&
           std::all_of(held.begin(), held.end(), [this](const Assignment& one) {
             const Model& model = models_.at(one.model);
             return model.blocks.empty() && model.complete;
           });
  }

  [[nodiscard]] bool instance_unneeded(const Piece& piece, const Pieces& there) const {
    return std::all_of(there.begin(), there.end(), [&](const Piece& other) {
      return !other.old || !same_instance(*other.part, *piece.part) || unneeded(other);
    });
  }

  bool end_unneeded() {
    bool ended = false;
    for (auto& entry : devices_) {
      const Pieces there = std::exchange(entry.second, {});
      for (const Piece& piece : there) {
        if (!unneeded(piece) || !instance_unneeded(piece, there)) {
          entry.second.push_back(piece);
          continue;
        }
        note_end(piece.id);
        ended = true;
      }
    }
    return ended;
  }

  const MixtureInput& input_;
  std::map<DeviceKey, DeviceRoom> rooms_;
  std::map<DeviceKey, Pieces> devices_;  // the mixture
  std::unordered_map<std::string_view, Model> models_;
  std::vector<Block> blocks_;
  std::map<GpuletId, std::size_t> block_of_;
  std::size_t work_ = 0;
  MixtureChange change_;
};

// ---- Trial

Trial::Trial(const Mixing& mixing, const std::set<std::size_t>& group)
    : mixing_(mixing), group_(group) {
  for (const std::size_t at : group) begin(mixing.blocks_[at]);
}

Pieces& Trial::on(const DeviceKey& device) {
  const auto known = devices_.find(device);
  if (known != devices_.end()) return known->second;
  const auto before = mixing_.devices_.find(device);
  return devices_.emplace(device, before == mixing_.devices_.end() ? Pieces() : before->second)
      .first->second;
}

Served& Trial::served(std::string_view model) {
  return served_.try_emplace(model, mixing_.models_.at(model).served).first->second;
}

void Trial::count(const PlannedGpulet& part, int sign) {
  for (const Assignment& one : part.assignments) served(one.model).add(one.rate, sign);
}

void Trial::begin(const Block& block) {
  for (const GpuletId id : block.ids) {
    const PlannedGpulet& part = *mixing_.input_.wanted.at(id);
    Pieces& pieces = on(part.device);
    std::erase_if(pieces, [&](const Piece& piece) {
      if (piece.id != id) return false;
      for (const Assignment& one : piece.part->assignments) reduced_.insert(one.model);
      count(*piece.part, -1);
      return true;
    });
    pieces.push_back({id, &part, false});
    count(part, 1);
  }
}

std::optional<std::vector<std::size_t>> Trial::settle() {
  for (const std::size_t at : group_) {
    std::vector<std::size_t> more;
    for (const GpuletId id : mixing_.blocks_[at].ids) {
      for (const Assignment& one : mixing_.input_.wanted.at(id)->assignments) {
        const Model& model = mixing_.models_.at(one.model);
        if (!model.together) continue;
        if (!model.complete) return std::nullopt;
        for (const std::size_t other : model.blocks) {
          if (!mixing_.blocks_[other].ready) return std::nullopt;
          if (!group_.contains(other)) more.push_back(other);
        }
      }
    }
    if (!more.empty()) return more;
  }
  if (auto more = end_replaced(); !more || !more->empty()) return more;
  for (const std::string_view model : reduced_) {
    std::vector<std::size_t> helpers;
    if (!help(model, served(model), {}, helpers)) return std::nullopt;
    if (!helpers.empty()) return helpers;
  }
  std::vector<DeviceKey> touched;
  for (const auto& [key, pieces] : devices_) touched.push_back(key);
  for (const DeviceKey& key : touched) {
    if (auto more = make_room(key); !more || !more->empty()) return more;
  }
  return std::vector<std::size_t>();
}

std::optional<std::vector<std::size_t>> Trial::end_replaced() {
  Pieces replaced;
  for (const std::size_t at : group_) {
    for (const GpuletId id : mixing_.blocks_[at].ids) {
      const PlannedGpulet& part = *mixing_.input_.wanted.at(id);
      for (const Piece& piece : on(part.device)) {
        if (piece.old && same_instance(*piece.part, part)) replaced.push_back(piece);
      }
      for (const Assignment& one : part.assignments) {
        if (!mixing_.models_.at(one.model).together) continue;
        for (const auto& [key, before] : mixing_.devices_) {
          for (const Piece& piece : on(key)) {
            const auto& held = piece.part->assignments;
            if (piece.old && std::any_of(held.begin(), held.end(), [&one](const auto& other) {
                  return other.model == one.model;
                }))
              replaced.push_back(piece);
          }
        }
      }
    }
  }
  for (const Piece& piece : replaced) {
    if (std::find(ended_.begin(), ended_.end(), piece.id) != ended_.end()) continue;
    if (end_if_possible(piece)) continue;
    std::vector<std::size_t> helpers = helpers_for(piece);
    if (helpers.empty()) return std::nullopt;
    return helpers;
  }
  return std::vector<std::size_t>();
}

bool Trial::fits(const DeviceRoom& room, const DeviceKey& key, const Pieces& without) {
  std::vector<const PlannedGpulet*> parts;
  for (const Piece& piece : on(key)) {
    const bool left_out = std::any_of(without.begin(), without.end(),
                                      [&](const Piece& one) { return one.id == piece.id; });
    if (!left_out) parts.push_back(piece.part);
  }
  return room.holds(parts);
}

std::optional<std::vector<std::size_t>> Trial::make_room(const DeviceKey& key) {
  const auto found = mixing_.rooms_.find(key);
  if (found == mixing_.rooms_.end()) return std::vector<std::size_t>();
  const DeviceRoom& room = found->second;
  while (!fits(room, key, {})) {
    Pieces old = on(key);
    std::erase_if(old, [](const Piece& piece) { return !piece.old; });
    std::stable_sort(old.begin(), old.end(), [](const Piece& a, const Piece& b) {
      return a.part->size.percent > b.part->size.percent;
    });
    const auto suffices = [&](const Piece& piece) {
      return fits(room, key, ending_with(piece)) && end_if_possible(piece);
    };
    if (std::any_of(old.begin(), old.end(), suffices)) break;
    if (std::any_of(old.begin(), old.end(),
                    [this](const Piece& piece) { return end_if_possible(piece); }))
      continue;
    for (const Piece& piece : old) {
      std::vector<std::size_t> helpers = helpers_for(piece);
      if (!helpers.empty()) return helpers;
    }
    return std::nullopt;
  }
  return std::vector<std::size_t>();
}

Pieces Trial::ending_with(const Piece& piece) {
  Pieces ending{piece};
  for (const Piece& other : on(piece.part->device)) {
    if (other.old && other.id != piece.id && same_instance(*other.part, *piece.part))
      ending.push_back(other);
  }
  return ending;
}

std::map<std::string_view, Served> Trial::without(const Pieces& pieces) {
  std::map<std::string_view, Served> left;
  for (const Piece& piece : pieces) {
    for (const Assignment& one : piece.part->assignments)
      left.try_emplace(one.model, served(one.model)).first->second.add(one.rate, -1);
  }
  return left;
}

bool Trial::enough(std::string_view name, const Served& served) const {
  const Model& model = mixing_.models_.at(name);
  const double needed = std::min(model.least, model.served.rate);
  if (served.rate < needed - kRounding * (1 + needed)) return false;
  return served.gpulets > 0 || model.served.gpulets == 0 || (!model.needed && model.complete);
}

bool Trial::end_if_possible(const Piece& piece) {
  const Pieces ending = ending_with(piece);
  const bool stays = std::any_of(ending.begin(), ending.end(), [this](const Piece& one) {
    return mixing_.input_.wanted.contains(one.id);
  });
  if (stays) return false;
  for (const auto& [model, left] : without(ending)) {
    if (!enough(model, left)) return false;
  }
  Pieces& pieces = on(piece.part->device);
  for (const Piece& one : ending) {
    count(*one.part, -1);
    ended_.push_back(one.id);
    std::erase_if(pieces, [&one](const Piece& other) { return other.id == one.id; });
  }
  return true;
}

std::vector<std::size_t> Trial::helpers_for(const Piece& piece) {
  const Pieces ending = ending_with(piece);
  std::vector<std::size_t> helpers;
  for (const Piece& one : ending) {  // those that stay have to change their part
    const auto block = mixing_.block_of_.find(one.id);
    if (block == mixing_.block_of_.end()) continue;
    if (!mixing_.blocks_[block->second].ready || group_.contains(block->second)) return {};
    helpers.push_back(block->second);
  }
  for (const auto& [model, left] : without(ending)) {
    if (!help(model, left, piece.part->device, helpers)) return {};
  }
  return helpers;
}

bool Trial::help(std::string_view name, Served left, const DeviceKey& near,
                 std::vector<std::size_t>& helpers) const {
  const Model& model = mixing_.models_.at(name);
  const auto brings = [&](std::size_t at) {
    Served more;
    for (const GpuletId id : mixing_.blocks_[at].ids) {
      for (const Assignment& one : mixing_.input_.wanted.at(id)->assignments) {
        if (one.model == name) more.add(one.rate, 1);
      }
    }
    return more;
  };
  const auto is_near = [&](std::size_t at) {
    return mixing_.input_.wanted.at(mixing_.blocks_[at].ids.front())->device == near;
  };
  std::vector<std::size_t> candidates;
  for (const std::size_t at : model.blocks) {
    if (mixing_.blocks_[at].ready && !group_.contains(at)) candidates.push_back(at);
  }
  std::stable_partition(candidates.begin(), candidates.end(), is_near);
  for (auto next = candidates.begin(); !enough(name, left); ++next) {
    if (next == candidates.end()) return false;
    const Served more = brings(*next);
    left.rate += more.rate;
    left.gpulets += more.gpulets;
    helpers.push_back(*next);
  }
  return true;
}

}  // namespace

std::map<std::string, double> least_rates(const GpuletParts& before, const WantedParts& after) {
  std::map<std::string, double> rates_before;
  for (const auto& [id, part] : before) {
    for (const Assignment& one : part.assignments) rates_before[one.model] += one.rate;
  }
  std::map<std::string, double> least;
  for (const auto& [id, part] : after) {
    for (const Assignment& one : part->assignments) least[one.model] += one.rate;
  }
  for (auto& [model, rate] : least) {
    const auto was = rates_before.find(model);
    rate = std::min(rate, was == rates_before.end() ? 0.0 : was->second);
  }
  return least;
}

MixtureChange next_mixture(const MixtureInput& input) { return Mixing(input).run(); }

}  // namespace gpulet::schedule
