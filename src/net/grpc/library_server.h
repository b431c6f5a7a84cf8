// LibraryServer: one server of the gRPC library with the protocol's services. Its limits are fixed
// from its start.
#pragma once

#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>

#include "gpulet/core/status.h"
#include "health.h"
#include "reflection.h"
#include "services.h"
#include "site.h"

namespace gpulet::net::grpc_api {

class LibraryServer {
 public:
  explicit LibraryServer(const SitePointer& site);
  // Cancels the calls under way.
  ~LibraryServer();
  LibraryServer(const LibraryServer&) = delete;
  LibraryServer& operator=(const LibraryServer&) = delete;

  // Once. `memory` is shared by the servers that it is given to.
  [[nodiscard]] Status start(std::size_t max_message_bytes, const ::grpc::ResourceQuota& memory,
                             const std::shared_ptr<::grpc::ServerCredentials>& credentials);

  // Takes a connection over. REQUIRES: it was started.
  void take(int descriptor);
  // Asks its clients to connect again for their next call, and returns. Calls under way go on, but
  // for health watches and reflection: they end with UNAVAILABLE.
  void leave();
  // The frontend drains: who watches its health is told so, and these calls end.
  void end_lasting_calls();
  // Waits for the calls under way, and cancels those that are left at the deadline. After leave(),
  // also on another thread.
  void end_by(std::chrono::system_clock::time_point deadline);

 private:
  SitePointer site_;
  InferenceService inference_;
  HealthService health_;
  Reflection reflection_;
  ReflectionService<::grpc::reflection::v1::ServerReflection::CallbackService> reflection_v1_{
      reflection_};
  ReflectionService<::grpc::reflection::v1alpha::ServerReflection::CallbackService>
      reflection_v1alpha_{reflection_};
  UnknownMethods unknown_;
  std::unique_ptr<::grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<::grpc::Server> server_;
  std::future<void> leaving_;  // valid: it leaves
};

}  // namespace gpulet::net::grpc_api
