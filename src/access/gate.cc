#include "gpulet/access/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "access/quota.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"

namespace gpulet::access {
namespace {

namespace asio = net::asio;

constexpr std::size_t kNetworkBytes = 8;  // of an IPv6 address

// Counts requests as in flight in up to two quotas.
class InFlight {
 public:
  InFlight(std::shared_ptr<Quota> one, std::shared_ptr<Quota> other, std::uint32_t requests)
      : one_(std::move(one)), other_(std::move(other)), requests_(requests) {
    if (one_) one_->enter(requests_);
    if (other_) other_->enter(requests_);
  }
  ~InFlight() {
    if (one_) one_->leave(requests_);
    if (other_) other_->leave(requests_);
  }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

 private:
  std::shared_ptr<Quota> one_;
  std::shared_ptr<Quota> other_;
  std::uint32_t requests_;
};

// The key of address limits: the address; for IPv6 the /64 network, which one subscriber owns.
std::string quota_key_of(const std::string& address) {
  boost::system::error_code error;
  const asio::ip::address parsed = asio::ip::make_address(address, error);
  if (error || parsed.is_v4()) return address;
  asio::ip::address_v6::bytes_type bytes = parsed.to_v6().to_bytes();
  std::fill(bytes.begin() + kNetworkBytes, bytes.end(), static_cast<unsigned char>(0));
  return asio::ip::address_v6(bytes).to_string() + "/64";
}

std::string seconds_text(Duration duration) {
  const auto milliseconds = duration / std::chrono::milliseconds(1) + 1;
  return fmt::format("{}.{:03} s", milliseconds / 1000, milliseconds % 1000);
}

Access refusal(std::string_view kind, const std::string& name, const QuotaVerdict& verdict) {
  return {{StatusCode::limited,
           fmt::format("{} {} has reached its {}; try again in {}", kind, name,
                       to_string(verdict.reached), seconds_text(verdict.retry_after))},
          verdict.retry_after};
}

void count_reached(QuotaLimit reached, ClientCounters& counters) {
  if (reached == QuotaLimit::requests) ++counters.limited_requests;
  if (reached == QuotaLimit::device_time) ++counters.limited_device_time;
  if (reached == QuotaLimit::in_flight) ++counters.limited_in_flight;
}

AuditRecord record_of(const CallNeeds& needs, const PeerIdentity& peer, const Status& result) {
  return {peer, needs.action, needs.target.empty() ? needs.model : needs.target, result};
}

}  // namespace

// The quotas of all tokens and addresses.
class Gate::Limits {
 public:
  // Those that apply to a caller. Null: none.
  struct Quotas {
    std::shared_ptr<Quota> token;
    std::shared_ptr<Quota> address;
  };

  explicit Limits(const config::ClientLimits& per_address) : per_address_(per_address) {}

  [[nodiscard]] bool limits_addresses() const { return per_address_.any(); }
  [[nodiscard]] bool apply_to(const PeerIdentity& peer) const {
    return per_address_.any() || (peer.token && peer.token->limits.any());
  }
  [[nodiscard]] Quotas quotas_of(const PeerIdentity& peer, Time now);
  struct Decision {
    Access access;
    QuotaLimit reached = QuotaLimit::none;
  };
  // Charges `pays`, unless it or `enters` more requests in flight reach a limit.
  [[nodiscard]] static Decision admit(const PeerIdentity& peer, const Quotas& quotas,
                                      const QuotaUse& pays, std::uint32_t enters, Time now);

 private:
  const config::ClientLimits per_address_;
  QuotaBook by_token_;
  QuotaBook by_address_;
};

Gate::Limits::Quotas Gate::Limits::quotas_of(const PeerIdentity& peer, Time now) {
  Quotas quotas;
  if (peer.token && peer.token->limits.any())
    quotas.token = by_token_.of(peer.token->name, peer.token->limits, now);
  if (per_address_.any() && !peer.address.empty())
    quotas.address = by_address_.of(quota_key_of(peer.address), per_address_, now);
  return quotas;
}

Gate::Limits::Decision Gate::Limits::admit(const PeerIdentity& peer, const Quotas& quotas,
                                           const QuotaUse& pays, std::uint32_t enters, Time now) {
  for (const auto& quota : {quotas.token, quotas.address}) {
    if (!quota) continue;
    QuotaVerdict verdict = quota->check_in_flight(enters);
    if (verdict.admitted() && pays.requests > 0) verdict = quota->check_rates(pays, now);
    if (verdict.admitted()) continue;
    return {quota == quotas.token ? refusal("token", peer.token->name, verdict)
                                  : refusal("address", peer.address, verdict),
            verdict.reached};
  }
  for (const auto& quota : {quotas.token, quotas.address}) {
    if (quota && pays.requests > 0) quota->pay(pays, now);
  }
  return {};
}

Gate::Gate(std::shared_ptr<const Tokens> tokens, const config::ClientLimits& per_address)
    : limits_(std::make_unique<Limits>(per_address)),
      tokens_(std::move(tokens)),
      guards_any_(tokens_->guard_any()) {}
Gate::~Gate() = default;

std::shared_ptr<const Tokens> Gate::tokens() const {
  const std::lock_guard lock(mutex_);
  return tokens_;
}

bool Gate::guards_inference() const { return guards_any_ || limits_addresses(); }

bool Gate::limits_addresses() const { return limits_->limits_addresses(); }

void Gate::replace(std::shared_ptr<const Tokens> tokens) {
  const std::lock_guard lock(mutex_);
  tokens_ = std::move(tokens);
  guards_any_ = tokens_->guard_any();
}

bool Gate::revoked(const PeerIdentity& peer) const {
  return peer.token != nullptr && tokens()->renewed(peer.token) == nullptr;
}

Status Gate::check(const CallNeeds& needs, PeerIdentity& peer) {
  if (!guards_any_) return {};
  const std::shared_ptr<const Tokens> current = tokens();
  if (peer.token) peer.token = current->renewed(peer.token);
  Status may = current->check(needs.right, peer, needs.model);
  if (!may.ok()) refuse(needs, peer, may);
  return may;
}

void Gate::set_audit(OnAudit called, OnAudit refused) {
  called_ = std::move(called);
  refused_ = std::move(refused);
}

void Gate::refuse(const CallNeeds& needs, const PeerIdentity& peer, const Status& why) {
  if (needs.right == Right::inference) {
    const std::lock_guard lock(mutex_);
    ++counters_of(peer).denied;
  }
  if (refused_) refused_(record_of(needs, peer, why));
}

void Gate::called(const CallNeeds& needs, const PeerIdentity& peer, const Status& result) const {
  if (called_) called_(record_of(needs, peer, result));
}

Duration Gate::device_time(std::string_view model) const {
  return device_time_ ? device_time_(model) : Duration::zero();
}

ClientCounters& Gate::counters_of(const PeerIdentity& peer) {
  const std::string_view name = peer.token_name();
  const auto found = counters_.find(name);
  return found != counters_.end() ? found->second
                                  : counters_.emplace(name, ClientCounters{}).first->second;
}

CountersByClient Gate::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

Access Gate::announce(PeerIdentity& peer, std::string_view model) {
  peer.paid_requests = 0;
  if (guards_any_) {
    Status may = check({Right::inference, "infer", std::string(model)}, peer);
    if (!may.ok()) return {std::move(may)};
  }
  if (!limits_->apply_to(peer)) return {};
  const Duration cost = device_time(model);
  const Time now = net::now();
  const std::lock_guard lock(mutex_);
  const Limits::Quotas quotas = limits_->quotas_of(peer, now);
  if (!quotas.token && !quotas.address) return {};
  Limits::Decision decision = Limits::admit(peer, quotas, {1, cost}, 1, now);
  if (decision.access.status.ok()) {
    peer.paid_requests = 1;
  } else {
    count_reached(decision.reached, counters_of(peer));
  }
  return std::move(decision.access);
}

Access Gate::enter(PeerIdentity& peer, std::string_view model, std::size_t rows) {
  const auto entering = static_cast<std::uint32_t>(
      std::min<std::size_t>(rows, std::numeric_limits<std::uint32_t>::max()));
  const std::uint32_t unpaid = entering - std::min(entering, peer.paid_requests);
  peer.paid_requests = 0;
  const Duration each = device_time(model);
  const Time now = net::now();
  const std::lock_guard lock(mutex_);
  Access access;
  if (limits_->apply_to(peer)) {
    const Limits::Quotas quotas = limits_->quotas_of(peer, now);
    Limits::Decision decision = Limits::admit(peer, quotas, {unpaid, each * unpaid}, entering, now);
    access = std::move(decision.access);
    if (!access.status.ok()) {
      count_reached(decision.reached, counters_of(peer));
      return access;
    }
    access.permit = std::make_shared<const InFlight>(quotas.token, quotas.address, entering);
  }
  ClientCounters& counters = counters_of(peer);
  counters.requests += entering;
  counters.device_s += to_seconds(each * entering);
  return access;
}

}  // namespace gpulet::access
