// EtcdMembership: Membership on etcd, version 3.4 or later.
//
// Single-strand: all calls and events happen on the executor of the io_context. gRPC's threads only
// pass replies to it. Destroying it ends its calls and leaves the keys until the lease ends.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/cluster/membership.h"
#include "gpulet/net/asio.h"

namespace gpulet::cluster {

// Contents of PEM files. Empty: not configured.
struct EtcdTls {
  std::string authority;
  std::string certificate;
  std::string key;
};

struct EtcdOptions {
  std::vector<std::string> endpoints;  // HOST:PORT; at least one
  std::string prefix;                  // of the cluster's keys; ends with '/'
  std::string cluster;                 // the cluster's name
  Member self;
  Duration lease = std::chrono::seconds(5);
  std::string user;  // empty: none
  std::string password;
  std::optional<EtcdTls> tls;
};

[[nodiscard]] std::unique_ptr<Membership> make_etcd_membership(net::asio::io_context& io,
                                                               EtcdOptions options);

}  // namespace gpulet::cluster
