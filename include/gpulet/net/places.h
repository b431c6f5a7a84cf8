// Places: who holds a connection of a listener, and who gives way to a newcomer.
//
// There are general places, and a few kept back for those who look how the server is or administer
// it. A newcomer that finds no general place makes room: connections that have said nothing yet
// give way first, the oldest before the others, then those with nothing under way for a while.
// Where nobody can give way it gets a place that is kept back; whoever holds one of those serves
// no ordinary work over it. Addresses have a bound of their own, within which the same rules hold.
//
// Single-strand type; a place may be given back after the Places are gone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"

namespace gpulet::net {

struct PlaceLimits {
  std::size_t general = 4096;
  std::size_t reserve = 0;      // kept back, beyond the general ones
  std::size_t per_address = 0;  // of the general ones; 0: no bound
  // One in so many gives way at once: looking for them costs a walk over all.
  std::size_t part_that_gives_way = 64;
  Duration least_idle = std::chrono::seconds(5);  // before who has said something gives way
};

// Connections of one address; of IPv6, of one network of 64 bits, which is what a host is given.
[[nodiscard]] std::string address_key(const asio::ip::address& address);

class Place {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // The connection that holds a place.
  class Holder {
   public:
    enum class State : std::uint8_t {
      silent,  // it has said nothing whole yet
      idle,    // nothing is under way
      busy,
    };
    struct Standing {
      State state = State::busy;
      TimePoint since;  // of that state
    };
    [[nodiscard]] virtual Standing standing() const = 0;
    // Another one needs the place: closes the connection, which gives the place back sooner or
    // later. Does not create or destroy holders.
    virtual void give_way() = 0;
    Holder() = default;
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

   protected:
    ~Holder() = default;
  };

  // One that is kept back.
  [[nodiscard]] virtual bool reserved() const = 0;
  // Without a holder (null) it does not give way. The holder outlives its being set.
  virtual void set_holder(Holder* holder) = 0;
  virtual ~Place() = default;
  Place() = default;
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
};

class Places {
 public:
  explicit Places(const PlaceLimits& limits);
  ~Places();
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;

  // Null where there is none for whoever comes from that address.
  [[nodiscard]] std::unique_ptr<Place> take(const std::string& address, Place::TimePoint now);
  // Has some give way although there are places. Returns how many did.
  std::size_t make_room(Place::TimePoint now);

  [[nodiscard]] std::size_t taken() const;       // of all
  [[nodiscard]] std::uint64_t gave_way() const;  // so far
  [[nodiscard]] std::uint64_t turned_away() const;

 private:
  class Table;
  std::shared_ptr<Table> table_;  // shared with the places that are out
};

}  // namespace gpulet::net
