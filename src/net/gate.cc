#include "gpulet/net/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "gpulet/net/event_loop.h"

namespace gpulet::net {
namespace {

constexpr double kUnlimited = 1e12;
constexpr double kSlack = 1e-6;  // relative to the burst, for rounding errors
// The wait for requests in flight to end is unknown.
constexpr Duration kInFlightRetry = std::chrono::milliseconds(100);
constexpr double kLongestWaitSeconds = 3600;
// Accounts with requests in flight are skipped, at most this many at a time.
constexpr int kMostTries = 16;

double or_unlimited(double rate) { return rate > 0 ? rate : kUnlimited; }

TokenBucket requests_bucket(const config::ClientLimits& limits, Time now) {
  const double rate = or_unlimited(limits.requests_per_s);
  return {rate, std::max(1.0, rate), now};
}

TokenBucket device_bucket(const config::ClientLimits& limits, Time now) {
  const double rate = or_unlimited(limits.device_ms_per_s);
  return {rate, rate, now};
}

}  // namespace

std::string_view to_string(QuotaLimit limit) {
  switch (limit) {
    case QuotaLimit::none:
      return "none";
    case QuotaLimit::requests:
      return "requests_per_s";
    case QuotaLimit::device_time:
      return "device_ms_per_s";
    case QuotaLimit::in_flight:
      return "max_requests";
  }
  return "unknown";
}

TokenBucket::TokenBucket(double rate_per_s, double burst, Time now)
    : rate_per_s_(rate_per_s), burst_(burst), level_(burst), filled_(now) {}

void TokenBucket::fill(Time now) {
  if (now <= filled_) return;
  level_ = std::min(burst_, level_ + rate_per_s_ * to_seconds(now - filled_));
  filled_ = now;
}

Duration TokenBucket::wait_for(double amount, Time now) {
  fill(now);
  const double missing = std::min(amount, burst_) - level_;
  if (missing <= kSlack * burst_) return Duration::zero();
  return from_seconds(std::min(kLongestWaitSeconds, missing / rate_per_s_)) + Duration(1);
}

void TokenBucket::take(double amount, Time now) {
  fill(now);
  level_ -= amount;
}

Quota::Quota(const config::ClientLimits& limits, Time now)
    : limits_(limits),
      requests_(requests_bucket(limits, now)),
      device_ms_(device_bucket(limits, now)) {}

QuotaVerdict Quota::check_in_flight(std::uint32_t requests) const {
  const bool crowded = limits_.max_requests > 0 && in_flight_ + requests > limits_.max_requests;
  return crowded ? QuotaVerdict{QuotaLimit::in_flight, kInFlightRetry} : QuotaVerdict{};
}

QuotaVerdict Quota::check_rates(const QuotaUse& use, Time now) {
  if (limits_.requests_per_s > 0) {
    const Duration wait = requests_.wait_for(use.requests, now);
    if (wait > Duration::zero()) return {QuotaLimit::requests, wait};
  }
  if (limits_.device_ms_per_s > 0) {
    const Duration wait = device_ms_.wait_for(to_ms(use.device_time), now);
    if (wait > Duration::zero()) return {QuotaLimit::device_time, wait};
  }
  return {};
}

void Quota::pay(const QuotaUse& use, Time now) {
  if (limits_.requests_per_s > 0) requests_.take(use.requests, now);
  if (limits_.device_ms_per_s > 0) device_ms_.take(to_ms(use.device_time), now);
}

void Quota::change(const config::ClientLimits& limits, Time now) {
  if (limits == limits_) return;
  limits_ = limits;
  requests_ = requests_bucket(limits, now);
  device_ms_ = device_bucket(limits, now);
}

std::shared_ptr<Quota> QuotaBook::of(std::string_view client, const config::ClientLimits& limits,
                                     Time now) {
  std::string key(client);
  const auto found = accounts_.find(key);
  if (found != accounts_.end()) {
    by_use_.splice(by_use_.begin(), by_use_, found->second.used);
    found->second.quota->change(limits, now);
    return found->second.quota;
  }
  if (accounts_.size() >= most_) evict_one();
  by_use_.push_front(key);
  const auto made = std::make_shared<Quota>(limits, now);
  accounts_.emplace(std::move(key), Account{made, by_use_.begin()});
  return made;
}

void QuotaBook::evict_one() {
  for (int tries = 0; tries < kMostTries && !by_use_.empty(); ++tries) {
    const auto oldest = accounts_.find(by_use_.back());
    if (oldest->second.quota->in_flight() == 0) {
      accounts_.erase(oldest);
      by_use_.pop_back();
      return;
    }
    by_use_.splice(by_use_.begin(), by_use_, std::prev(by_use_.end()));
  }
}

namespace {

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

Admission refusal(std::string_view kind, const std::string& name, const QuotaVerdict& verdict) {
  return {{StatusCode::limited,
           fmt::format("{} {} has reached its {}; try again in {}", kind, name,
                       to_string(verdict.reached), seconds_text(verdict.retry_after))},
          verdict.retry_after};
}

AuditRecord record_of(const CallNeeds& needs, const PeerIdentity& peer, const Status& result) {
  return {peer, needs.action, needs.target.empty() ? needs.model : needs.target, result};
}

}  // namespace

Gate::Gate(std::shared_ptr<const Tokens> tokens, const config::ClientLimits& per_address)
    : per_address_(per_address), tokens_(std::move(tokens)), current_(tokens_) {}

std::shared_ptr<const Tokens> Gate::tokens() const {
  const std::lock_guard lock(mutex_);
  return tokens_;
}

bool Gate::guards_inference() const { return current_->guard_any() || per_address_.any(); }

void Gate::replace(std::shared_ptr<const Tokens> tokens) {
  const std::lock_guard lock(mutex_);
  tokens_ = std::move(tokens);
  current_ = tokens_;
}

bool Gate::revoked(const PeerIdentity& peer) const {
  return peer.token != nullptr && current_->renewed(peer.token) == nullptr;
}

Status Gate::check(const CallNeeds& needs, PeerIdentity& peer) {
  if (!current_->guard_any()) return {};
  if (peer.token) peer.token = current_->renewed(peer.token);
  Status may = current_->check(needs.right, peer, needs.model);
  if (!may.ok()) refuse(needs, peer, may);
  return may;
}

void Gate::set_audit(OnAudit called, OnAudit refused) {
  called_ = std::move(called);
  refused_ = std::move(refused);
}

void Gate::refuse(const CallNeeds& needs, const PeerIdentity& peer, const Status& why) {
  if (needs.right == Right::inference) ++counters_of(peer).denied;
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

void Gate::count(const PeerIdentity& peer, QuotaLimit reached) {
  ClientCounters& counters = counters_of(peer);
  if (reached == QuotaLimit::requests) ++counters.limited_requests;
  if (reached == QuotaLimit::device_time) ++counters.limited_device_time;
  if (reached == QuotaLimit::in_flight) ++counters.limited_in_flight;
}

bool Gate::limits(const PeerIdentity& peer) const {
  return per_address_.any() || (peer.token && peer.token->limits.any());
}

Gate::Quotas Gate::quotas_of(const PeerIdentity& peer, Time now) {
  Quotas quotas;
  if (peer.token && peer.token->limits.any())
    quotas.token = by_token_.of(peer.token->name, peer.token->limits, now);
  if (per_address_.any() && !peer.address.empty())
    quotas.address = by_address_.of(quota_key_of(peer.address), per_address_, now);
  return quotas;
}

Admission Gate::admit(const PeerIdentity& peer, const Quotas& quotas, const QuotaUse& pays,
                      std::uint32_t enters, Time now) {
  for (const auto& quota : {quotas.token, quotas.address}) {
    if (!quota) continue;
    QuotaVerdict verdict = quota->check_in_flight(enters);
    if (verdict.admitted() && pays.requests > 0) verdict = quota->check_rates(pays, now);
    if (verdict.admitted()) continue;
    count(peer, verdict.reached);
    return quota == quotas.token ? refusal("token", peer.token->name, verdict)
                                 : refusal("address", peer.address, verdict);
  }
  for (const auto& quota : {quotas.token, quotas.address}) {
    if (quota && pays.requests > 0) quota->pay(pays, now);
  }
  return {};
}

Admission Gate::announce(PeerIdentity& peer, std::string_view model) {
  peer.paid_requests = 0;
  if (current_->guard_any()) {
    Status may = check({Right::inference, "infer", std::string(model)}, peer);
    if (!may.ok()) return {std::move(may)};
  }
  if (!limits(peer)) return {};
  const Time now = net::now();
  const Quotas quotas = quotas_of(peer, now);
  if (!quotas.token && !quotas.address) return {};
  Admission admission = admit(peer, quotas, {1, device_time(model)}, 1, now);
  if (admission.status.ok()) peer.paid_requests = 1;
  return admission;
}

Admission Gate::enter(PeerIdentity& peer, std::string_view model, std::size_t rows) {
  const auto entering = static_cast<std::uint32_t>(
      std::min<std::size_t>(rows, std::numeric_limits<std::uint32_t>::max()));
  const std::uint32_t unpaid = entering - std::min(entering, peer.paid_requests);
  peer.paid_requests = 0;
  const Duration each = device_time(model);
  Admission admission;
  if (limits(peer)) {
    const Time now = net::now();
    const Quotas quotas = quotas_of(peer, now);
    admission = admit(peer, quotas, {unpaid, each * unpaid}, entering, now);
    if (!admission.status.ok()) return admission;
    admission.permit = std::make_shared<const InFlight>(quotas.token, quotas.address, entering);
  }
  ClientCounters& counters = counters_of(peer);
  counters.requests += entering;
  counters.device_s += to_seconds(each * entering);
  return admission;
}

}  // namespace gpulet::net
