#include "gpulet/net/places.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <utility>
#include <vector>

namespace gpulet::net {
namespace {

// Of an IPv6 address: the network that one subscriber has to itself.
constexpr std::size_t kSubscriberBytes = 8;
// Nobody gave way: it is not worth a look at each of a flood of newcomers.
constexpr Duration kPauseAfterNone = std::chrono::milliseconds(100);

}  // namespace

std::string address_key(const asio::ip::address& address) {
  if (address.is_v6() && !address.to_v6().is_v4_mapped()) {
    const asio::ip::address_v6::bytes_type bytes = address.to_v6().to_bytes();
    return {reinterpret_cast<const char*>(bytes.data()), kSubscriberBytes};
  }
  const asio::ip::address_v4 four =
      address.is_v6() ? asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6())
                      : address.to_v4();
  const asio::ip::address_v4::bytes_type bytes = four.to_bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Places::Table : public std::enable_shared_from_this<Places::Table> {
 public:
  explicit Table(const PlaceLimits& limits) : limits_(limits) {}

  [[nodiscard]] std::unique_ptr<Place> take(const std::string& address, Place::TimePoint now);
  std::size_t make_room(Place::TimePoint now);
  [[nodiscard]] std::size_t taken() const { return general_.size() + reserve_.size(); }
  [[nodiscard]] std::uint64_t gave_way() const { return gave_way_; }
  [[nodiscard]] std::uint64_t turned_away() const { return turned_away_; }

 private:
  // Counted from when it is taken until it is given back or its holder was told to give way.
  struct Entry {
    Place::Holder* holder = nullptr;
    std::string address;
    bool reserved = false;
    bool counted = true;
  };
  using Entries = std::list<Entry*>;
  class Taken;

  [[nodiscard]] std::unique_ptr<Place> occupy(const std::string& address, bool reserved);
  [[nodiscard]] bool has_general(const std::string& address) const;
  std::size_t free_some(Entries& from, const std::string* address, std::size_t most,
                        Place::TimePoint now);
  void release(Entries::iterator place);
  [[nodiscard]] std::size_t part_of(std::size_t places) const {
    return std::max<std::size_t>(places / limits_.part_that_gives_way, 1);
  }

  const PlaceLimits limits_;
  Entries general_;  // the oldest first
  Entries reserve_;
  std::map<std::string, std::size_t> by_address_;  // of the general ones
  std::uint64_t gave_way_ = 0;
  std::uint64_t turned_away_ = 0;
  Place::TimePoint next_look_;             // for room among all
  Place::TimePoint next_look_by_address_;  // and among those of an address
};

class Places::Table::Taken final : public Place {
 public:
  Taken(std::shared_ptr<Table> table, const std::string& address, bool reserved)
      : table_(std::move(table)) {
    entry_.address = address;
    entry_.reserved = reserved;
    Entries& entries = reserved ? table_->reserve_ : table_->general_;
    at_ = entries.insert(entries.end(), &entry_);
    if (!reserved) ++table_->by_address_[address];
  }
  ~Taken() override {
    if (entry_.counted) table_->release(at_);
  }

  [[nodiscard]] bool reserved() const override { return entry_.reserved; }
  void set_holder(Holder* holder) override { entry_.holder = holder; }

 private:
  std::shared_ptr<Table> table_;
  Entry entry_;
  Entries::iterator at_;
};

bool Places::Table::has_general(const std::string& address) const {
  if (general_.size() >= limits_.general) return false;
  if (limits_.per_address == 0) return true;
  const auto found = by_address_.find(address);
  return found == by_address_.end() || found->second < limits_.per_address;
}

std::unique_ptr<Place> Places::Table::occupy(const std::string& address, bool reserved) {
  return std::make_unique<Taken>(shared_from_this(), address, reserved);
}

std::unique_ptr<Place> Places::Table::take(const std::string& address, Place::TimePoint now) {
  if (!has_general(address)) {
    const bool full = general_.size() >= limits_.general;
    Place::TimePoint& next_look = full ? next_look_ : next_look_by_address_;
    const std::size_t of = full ? limits_.general : limits_.per_address;
    if (next_look <= now && free_some(general_, full ? nullptr : &address, part_of(of), now) == 0)
      next_look = now + kPauseAfterNone;
  }
  if (has_general(address)) return occupy(address, false);
  if (reserve_.size() >= limits_.reserve) free_some(reserve_, nullptr, 1, now);
  if (reserve_.size() < limits_.reserve) return occupy(address, true);
  ++turned_away_;
  return nullptr;
}

std::size_t Places::Table::make_room(Place::TimePoint now) {
  if (next_look_ > now) return 0;
  const std::size_t freed = free_some(general_, nullptr, part_of(general_.size()), now);
  if (freed == 0) next_look_ = now + kPauseAfterNone;
  return freed;
}

// The places count as free at once, however long their connections take to close.
std::size_t Places::Table::free_some(Entries& from, const std::string* address, std::size_t most,
                                     Place::TimePoint now) {
  struct Candidate {
    bool spoke;
    Place::TimePoint since;
    Entries::iterator at;
  };
  std::vector<Candidate> candidates;
  for (auto at = from.begin(); at != from.end(); ++at) {
    const Entry& entry = **at;
    if (entry.holder == nullptr || (address != nullptr && entry.address != *address)) continue;
    const Place::Holder::Standing standing = entry.holder->standing();
    const bool spoke = standing.state != Place::Holder::State::silent;
    if (standing.state == Place::Holder::State::busy) continue;
    if (spoke && standing.since + limits_.least_idle > now) continue;
    candidates.push_back({spoke, standing.since, at});
  }
  const std::size_t count = std::min(most, candidates.size());
  const auto first_to_go = [](const Candidate& a, const Candidate& b) {
    return std::pair(a.spoke, a.since) < std::pair(b.spoke, b.since);
  };
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
                    candidates.end(), first_to_go);
  candidates.resize(count);
  std::vector<Place::Holder*> leaving;
  for (const Candidate& candidate : candidates) {
    Entry& entry = **candidate.at;
    leaving.push_back(std::exchange(entry.holder, nullptr));
    entry.counted = false;
    release(candidate.at);
  }
  gave_way_ += count;
  for (Place::Holder* const holder : leaving) holder->give_way();
  return count;
}

void Places::Table::release(Entries::iterator place) {
  const Entry& entry = **place;
  if (entry.reserved) {
    reserve_.erase(place);
    return;
  }
  const auto address = by_address_.find(entry.address);
  if (--address->second == 0) by_address_.erase(address);
  general_.erase(place);
}

Places::Places(const PlaceLimits& limits) : table_(std::make_shared<Table>(limits)) {}
Places::~Places() = default;

std::unique_ptr<Place> Places::take(const std::string& address, Place::TimePoint now) {
  return table_->take(address, now);
}
std::size_t Places::make_room(Place::TimePoint now) { return table_->make_room(now); }
std::size_t Places::taken() const { return table_->taken(); }
std::uint64_t Places::gave_way() const { return table_->gave_way(); }
std::uint64_t Places::turned_away() const { return table_->turned_away(); }

}  // namespace gpulet::net
