#include "lasting_calls.h"

#include <string>

#include "site.h"

namespace gpulet::net::grpc_api {

Status LastingCalls::add(const std::shared_ptr<LastingCall>& call) {
  const std::lock_guard lock(mutex_);
  if (draining_) return stopping();
  std::erase_if(calls_, [](const auto& one) { return one.expired(); });
  if (calls_.size() >= most_) {
    return {StatusCode::overloaded, "there are " + std::to_string(most_) +
                                        " such calls already; end one, or ask again later"};
  }
  calls_.push_back(call);
  return {};
}

std::vector<std::shared_ptr<LastingCall>> LastingCalls::calls() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<LastingCall>> calls;
  for (const auto& one : calls_) {
    if (auto call = one.lock()) calls.push_back(std::move(call));
  }
  return calls;
}

void LastingCalls::drain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  for (const auto& call : calls()) call->end(stopping());
}

}  // namespace gpulet::net::grpc_api
