#include "gpulet/net/gate.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "gpulet/net/asio.h"
#include "gpulet/net/clock.h"

namespace gpulet::net {
namespace {

constexpr unsigned kNetworkBytes = 8;  // of an IPv6 address

// What is under way of up to two quotas.
class Stay {
 public:
  Stay(std::shared_ptr<Quota> one, std::shared_ptr<Quota> other, std::uint32_t requests)
      : one_(std::move(one)), other_(std::move(other)), requests_(requests) {
    if (one_) one_->enter(requests_);
    if (other_) other_->enter(requests_);
  }
  ~Stay() {
    if (one_) one_->leave(requests_);
    if (other_) other_->leave(requests_);
  }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

 private:
  std::shared_ptr<Quota> one_;
  std::shared_ptr<Quota> other_;
  std::uint32_t requests_;
};

std::string seconds_text(Duration duration) {
  const auto milliseconds = duration / std::chrono::milliseconds(1) + 1;
  return std::to_string(milliseconds / 1000) + "." +
         std::to_string(1000 + milliseconds % 1000).substr(1) + " s";
}

Admission refusal(const std::string& whose, const QuotaVerdict& verdict) {
  Admission refused;
  refused.status = {StatusCode::limited, whose + " has reached its " +
                                             std::string(to_string(verdict.reached)) +
                                             "; try again in " + seconds_text(verdict.retry_after)};
  refused.retry_after = verdict.retry_after;
  return refused;
}

AuditRecord record_of(const CallNeeds& needs, const PeerIdentity& peer, const Status& result) {
  return {peer, needs.action, needs.target.empty() ? needs.model : needs.target, result};
}

}  // namespace

std::string quota_key_of(const std::string& address) {
  boost::system::error_code error;
  const asio::ip::address parsed = asio::ip::make_address(address, error);
  if (error || parsed.is_v4()) return address;
  asio::ip::address_v6::bytes_type bytes = parsed.to_v6().to_bytes();
  std::fill(bytes.begin() + kNetworkBytes, bytes.end(), static_cast<unsigned char>(0));
  return asio::ip::address_v6(bytes).to_string() + "/64";
}

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
  if (reached == QuotaLimit::under_way) ++counters.limited_under_way;
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
    QuotaVerdict verdict = quota->judge_place(enters);
    if (verdict.admitted() && pays.requests > 0) verdict = quota->judge_rates(pays, now);
    if (verdict.admitted()) continue;
    count(peer, verdict.reached);
    return refusal(quota == quotas.token ? "token " + peer.token->name : "address " + peer.address,
                   verdict);
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
    admission.permit = std::make_shared<const Stay>(quotas.token, quotas.address, entering);
  }
  ClientCounters& counters = counters_of(peer);
  counters.requests += entering;
  counters.device_s += to_seconds(each * entering);
  return admission;
}

}  // namespace gpulet::net
