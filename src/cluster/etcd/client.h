// EtcdClient: carries out a Session's calls on etcd by gRPC, and passes each reply to a callback.
//
// Calls and the destructor: one thread. The callback runs on a thread of gRPC. Every call but a
// Watch ends within kCallTimeout, with a reply or a CallFailed; the destructor ends the others
// without one and waits for callbacks that run.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <variant>

#include "cluster/store.h"
#include "gpulet/cluster/etcd/membership.h"

namespace gpulet::cluster {

class EtcdClient {
 public:
  static constexpr Duration kCallTimeout = std::chrono::seconds(5);

  using Ended = std::variant<CallEnded, ChangeSeen>;
  EtcdClient(const EtcdOptions& options, std::function<void(Ended)> on_ended);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  void start(const Call& call);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::cluster
