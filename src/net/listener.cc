#include "gpulet/net/listener.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "gpulet/base/files.h"

namespace gpulet::net {
namespace {

constexpr std::size_t kAddressKeyBytes = 8;  // of an IPv6 address
// After an eviction that found no candidate, so that a flood of connections does not repeat it.
constexpr Duration kEvictionBackoff = std::chrono::milliseconds(100);

}  // namespace

std::string address_key(const asio::ip::address& address) {
  if (address.is_v6() && !address.to_v6().is_v4_mapped()) {
    const asio::ip::address_v6::bytes_type bytes = address.to_v6().to_bytes();
    return {reinterpret_cast<const char*>(bytes.data()), kAddressKeyBytes};
  }
  const asio::ip::address_v4 four =
      address.is_v6() ? asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6())
                      : address.to_v4();
  const asio::ip::address_v4::bytes_type bytes = four.to_bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ConnectionSlots::Table : public std::enable_shared_from_this<ConnectionSlots::Table> {
 public:
  explicit Table(const ConnectionLimits& limits) : limits_(limits) {}

  [[nodiscard]] ConnectionSlotPointer take(const std::string& address,
                                           ConnectionSlot::TimePoint now) {
    const std::lock_guard lock(mutex_);
    if (!has_general(address)) {
      const bool full = general_.size() >= limits_.general;
      ConnectionSlot::TimePoint& next_attempt = full ? next_attempt_ : next_attempt_by_address_;
      const std::size_t of = full ? limits_.general : limits_.per_address;
      if (next_attempt <= now &&
          evict_from(general_, full ? nullptr : &address, share_of(of), now) == 0)
        next_attempt = now + kEvictionBackoff;
    }
    if (has_general(address))
      return std::make_unique<Taken>(shared_from_this(), address, false, now);
    if (reserve_.size() >= limits_.reserve) evict_from(reserve_, nullptr, 1, now);
    if (reserve_.size() < limits_.reserve)
      return std::make_unique<Taken>(shared_from_this(), address, true, now);
    ++rejected_;
    return nullptr;
  }

  std::size_t evict_some(ConnectionSlot::TimePoint now) {
    const std::lock_guard lock(mutex_);
    if (next_attempt_ > now) return 0;
    const std::size_t freed = evict_from(general_, nullptr, share_of(general_.size()), now);
    if (freed == 0) next_attempt_ = now + kEvictionBackoff;
    return freed;
  }

  [[nodiscard]] std::size_t taken() const {
    const std::lock_guard lock(mutex_);
    return general_.size() + reserve_.size();
  }
  [[nodiscard]] std::uint64_t evicted() const {
    const std::lock_guard lock(mutex_);
    return evicted_;
  }
  [[nodiscard]] std::uint64_t rejected() const {
    const std::lock_guard lock(mutex_);
    return rejected_;
  }

 private:
  // Counted until it is returned or evicted.
  struct Entry {
    ConnectionSlot::Holder* holder = nullptr;
    std::string address;
    ConnectionSlot::TimePoint taken;
    bool on_its_way = false;  // to the thread where it gets its holder
    bool reserved = false;
    bool counted = true;
  };
  using Entries = std::list<Entry*>;

  class Taken final : public ConnectionSlot {
   public:
    // REQUIRES: the table's mutex is held.
    Taken(std::shared_ptr<Table> table, const std::string& address, bool reserved, TimePoint now)
        : table_(std::move(table)) {
      entry_.address = address;
      entry_.taken = now;
      entry_.reserved = reserved;
      Entries& entries = reserved ? table_->reserve_ : table_->general_;
      at_ = entries.insert(entries.end(), &entry_);
      if (!reserved) ++table_->by_address_[address];
    }
    ~Taken() override {
      const std::lock_guard lock(table_->mutex_);
      if (entry_.counted) table_->release(at_);
    }

    [[nodiscard]] bool reserved() const override { return entry_.reserved; }
    void start_journey() override {
      const std::lock_guard lock(table_->mutex_);
      entry_.on_its_way = true;
    }
    void set_holder(Holder& holder) override {
      const std::shared_ptr<Table> table = table_;  // an evicted holder may destroy this slot
      const std::lock_guard lock(table->mutex_);
      if (!entry_.counted) return holder.evict();
      entry_.holder = &holder;
      entry_.on_its_way = false;
    }

   private:
    std::shared_ptr<Table> table_;
    Entry entry_;
    Entries::iterator at_;
  };

  // ---- REQUIRES: mutex_ is held

  [[nodiscard]] bool has_general(const std::string& address) const {
    if (general_.size() >= limits_.general) return false;
    if (limits_.per_address == 0) return true;
    const auto found = by_address_.find(address);
    return found == by_address_.end() || found->second < limits_.per_address;
  }

  // The slots count as free at once, however long their connections take to close.
  std::size_t evict_from(Entries& from, const std::string* address, std::size_t most,
                         ConnectionSlot::TimePoint now) {
    using State = ConnectionSlot::Holder::State;
    using Activity = ConnectionSlot::Holder::Activity;
    struct Candidate {
      bool spoke;
      ConnectionSlot::TimePoint since;
      Entries::iterator at;
    };
    std::vector<Candidate> candidates;
    for (auto at = from.begin(); at != from.end(); ++at) {
      const Entry& entry = **at;
      if (entry.holder == nullptr && !entry.on_its_way) continue;
      if (address != nullptr && entry.address != *address) continue;
      const Activity activity =
          entry.holder != nullptr ? entry.holder->activity() : Activity{State::silent, entry.taken};
      const bool spoke = activity.state != State::silent;
      if (activity.state == State::busy) continue;
      if (spoke && activity.since + limits_.least_idle > now) continue;
      candidates.push_back({spoke, activity.since, at});
    }
    const std::size_t count = std::min(most, candidates.size());
    const auto first_to_go = [](const Candidate& a, const Candidate& b) {
      return std::pair(a.spoke, a.since) < std::pair(b.spoke, b.since);
    };
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
                      candidates.end(), first_to_go);
    candidates.resize(count);
    std::vector<ConnectionSlot::Holder*> evicted;
    for (const Candidate& candidate : candidates) {
      Entry& entry = **candidate.at;
      evicted.push_back(std::exchange(entry.holder, nullptr));
      entry.counted = false;
      release(candidate.at);
    }
    evicted_ += count;
    for (ConnectionSlot::Holder* const holder : evicted) {
      if (holder != nullptr) holder->evict();
    }
    return count;
  }

  void release(Entries::iterator slot) {
    const Entry& entry = **slot;
    if (entry.reserved) {
      reserve_.erase(slot);
      return;
    }
    const auto address = by_address_.find(entry.address);
    if (--address->second == 0) by_address_.erase(address);
    general_.erase(slot);
  }

  [[nodiscard]] std::size_t share_of(std::size_t slots) const {
    return std::max<std::size_t>(slots / limits_.eviction_divisor, 1);
  }

  const ConnectionLimits limits_;
  // Recursive, because a holder on the same thread may return its slot while it is evicted.
  mutable std::recursive_mutex mutex_;
  Entries general_;  // oldest first
  Entries reserve_;
  std::map<std::string, std::size_t> by_address_;  // general slots only
  std::uint64_t evicted_ = 0;
  std::uint64_t rejected_ = 0;
  ConnectionSlot::TimePoint next_attempt_;             // to evict among all
  ConnectionSlot::TimePoint next_attempt_by_address_;  // to evict among those of one address
};

ConnectionSlots::ConnectionSlots(const ConnectionLimits& limits)
    : table_(std::make_shared<Table>(limits)) {}
ConnectionSlots::~ConnectionSlots() = default;

ConnectionSlotPointer ConnectionSlots::take(const std::string& address,
                                            ConnectionSlot::TimePoint now) {
  return table_->take(address, now);
}
std::size_t ConnectionSlots::evict_some(ConnectionSlot::TimePoint now) {
  return table_->evict_some(now);
}
std::size_t ConnectionSlots::taken() const { return table_->taken(); }
std::uint64_t ConnectionSlots::evicted() const { return table_->evicted(); }
std::uint64_t ConnectionSlots::rejected() const { return table_->rejected(); }

namespace {

using asio::ip::tcp;
using boost::system::error_code;

std::string to_text(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", address, endpoint.port())
                                    : fmt::format("{}:{}", address, endpoint.port());
}

}  // namespace

class Listener::Impl : public std::enable_shared_from_this<Listener::Impl> {
 public:
  Impl(const asio::any_io_executor& executor, const ListenerOptions& options,
       std::vector<Receiver> receivers)
      : acceptor_(executor),
        pause_timer_(executor),
        options_(options),
        tls_(options.tls),
        slots_(options.connections),
        pause_(options.first_pause) {
    for (Receiver& receiver : receivers) {
      states_.emplace_back(receiver.executor);
      receivers_.push_back(std::make_shared<const Receiver>(std::move(receiver)));
    }
  }

  [[nodiscard]] Status open(const tcp::endpoint& endpoint) {
    error_code error;
    acceptor_.open(endpoint.protocol(), error);
    // Lets a restarted daemon take its port although old connections linger in the kernel.
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) local_ = acceptor_.local_endpoint(error);
    if (!error) return {};
    return {
        StatusCode::unavailable,
        fmt::format("cannot listen on {}: {}; choose another address or port, or stop the process "
                    "that uses it",
                    to_text(endpoint), error.message())};
  }

  void accept() {
    acceptor_.async_accept(
        peer_, [self = shared_from_this()](const error_code& error, tcp::socket socket) {
          self->on_accepted(error, std::move(socket));
        });
  }

  void close() {
    closed_ = true;
    error_code ignored;
    acceptor_.close(ignored);
    pause_timer_.cancel();
  }

  void use_tls(TlsContextPointer tls) { tls_ = std::move(tls); }

  [[nodiscard]] tcp::endpoint local_endpoint() const { return local_; }
  [[nodiscard]] const ConnectionSlots& slots() const { return slots_; }
  [[nodiscard]] std::uint64_t failed_accepts() const { return failed_accepts_; }

 private:
  // Asio keeps the state of a closed descriptor for the next one and never frees it. A state that
  // was allocated between the memory of connections keeps that from being returned to the system.
  // So the states are allocated in groups, before connections need them.
  class DescriptorStates {
   public:
    explicit DescriptorStates(asio::any_io_executor executor) : executor_(std::move(executor)) {}

    // With that many connections, there are states for more, unless descriptors are short: beyond
    // `last_descriptor`.
    void make_beyond(std::size_t connections, int last_descriptor) {
      if (connections < made_) return;
      std::vector<asio::posix::stream_descriptor> group;
      for (std::size_t i = 0; i < kGroup; ++i) {
        FileDescriptor descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!descriptor.valid() || descriptor.get() > last_descriptor) break;
        error_code error;
        group.emplace_back(executor_).assign(descriptor.get(), error);
        if (error) break;
        (void)descriptor.release();
      }
      made_ = connections + kGroup;
    }

   private:
    static constexpr std::size_t kGroup = 128;

    asio::any_io_executor executor_;
    std::size_t made_ = 0;
  };

  void on_accepted(const error_code& error, tcp::socket socket) {
    if (closed_) return;
    if (error) {
      ++failed_accepts_;
      return pause();
    }
    pause_ = options_.first_pause;
    const std::size_t accepted = next_;
    if (ConnectionSlotPointer slot = slot_for(socket.native_handle())) {
      next_ = (next_ + 1) % receivers_.size();
      hand_over(receivers_[accepted], std::move(socket), std::move(slot));
      if (closed_) return;
    } else {
      error_code ignored;
      socket.close(ignored);
    }
    states_[accepted].make_beyond(slots_.taken() / receivers_.size(), options_.last_descriptor);
    accept();
  }

  void hand_over(const std::shared_ptr<const Receiver>& receiver, tcp::socket socket,
                 ConnectionSlotPointer slot) {
    if (receiver->executor == acceptor_.get_executor())
      return receiver->on_socket(Stream(std::move(socket), tls_), std::move(slot));
    // Accepted for this executor and not for that one: a pending accept that is dropped moves its
    // socket, and the other io_context may be gone then.
    error_code error;
    tcp::socket there(receiver->executor);
    const int descriptor = socket.release(error);
    if (!error) there.assign(local_.protocol(), descriptor, error);
    if (error) return;  // closes it, and the peer connects again
    slot->start_journey();
    asio::post(receiver->executor,
               [receiver, tls = tls_, socket = std::move(there), slot = std::move(slot)]() mutable {
                 receiver->on_socket(Stream(std::move(socket), tls), std::move(slot));
               });
  }

  // Without free descriptors every accept fails at once: wait for a connection to end.
  void pause() {
    pause_timer_.expires_after(pause_);
    pause_ = std::min(2 * pause_, options_.longest_pause);
    pause_timer_.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error && !self->closed_) self->accept();
    });
  }

  // The kernel assigns the lowest free descriptor: a high one means that nearly all are in use.
  [[nodiscard]] ConnectionSlotPointer slot_for(int descriptor) {
    const ConnectionSlot::TimePoint now = std::chrono::steady_clock::now();
    if (descriptor > options_.last_descriptor && slots_.evict_some(now) == 0) return nullptr;
    return slots_.take(address_key(peer_.address()), now);
  }

  tcp::acceptor acceptor_;
  std::vector<std::shared_ptr<const Receiver>> receivers_;  // shared with connections on their way
  std::vector<DescriptorStates> states_;                    // one for each receiver
  std::size_t next_ = 0;                                    // gets the next connection
  asio::steady_timer pause_timer_;
  const ListenerOptions options_;
  TlsContextPointer tls_;
  tcp::endpoint local_;
  ConnectionSlots slots_;
  tcp::endpoint peer_;  // of the accept in progress
  std::uint64_t failed_accepts_ = 0;
  Duration pause_;
  bool closed_ = false;
};

Result<std::unique_ptr<Listener>> Listener::listen(const asio::any_io_executor& executor,
                                                   const std::string& host, std::uint16_t port,
                                                   const ListenerOptions& options,
                                                   OnSocket on_socket) {
  std::vector<Receiver> receivers;
  receivers.push_back({executor, std::move(on_socket)});
  return listen(executor, host, port, options, std::move(receivers));
}

Result<std::unique_ptr<Listener>> Listener::listen(const asio::any_io_executor& executor,
                                                   const std::string& host, std::uint16_t port,
                                                   const ListenerOptions& options,
                                                   std::vector<Receiver> receivers) {
  error_code error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (error) {
    return Status(
        StatusCode::invalid,
        fmt::format(
            R"(cannot listen on "{}": use a numeric address, such as 127.0.0.1, 0.0.0.0 or ::)",
            host));
  }
  auto impl = std::make_shared<Impl>(executor, options, std::move(receivers));
  if (const Status status = impl->open({address, port}); !status.ok()) return status;
  impl->accept();
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

Listener::Listener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Listener::~Listener() { impl_->close(); }

std::uint16_t Listener::port() const { return impl_->local_endpoint().port(); }
std::string Listener::local_address() const { return to_text(impl_->local_endpoint()); }
std::size_t Listener::connections() const { return impl_->slots().taken(); }
const ConnectionSlots& Listener::slots() const { return impl_->slots(); }
std::uint64_t Listener::failed_accepts() const { return impl_->failed_accepts(); }
void Listener::use_tls(TlsContextPointer tls) { impl_->use_tls(std::move(tls)); }
void Listener::close() { impl_->close(); }

}  // namespace gpulet::net
