// The standard health check (proto/health.proto). A watch gets the status at once and whenever it
// has changed; a look at the server every kBetweenLooks finds that out while somebody watches.
#pragma once

#include <chrono>
#include <memory>

#include "gpulet/core/time.h"
#include "health.grpc.pb.h"
#include "site.h"

namespace gpulet::net::grpc_api {

class HealthService final : public ::grpc::health::v1::Health::CallbackService {
 public:
  static constexpr Duration kBetweenLooks = std::chrono::milliseconds(250);

  explicit HealthService(SitePointer site);
  ~HealthService() override;

  // Tells who watches that the server serves no more, and ends the watches. The executor's thread.
  void drain();
  // Ends the watches, and takes no others: another server has come in place of this one.
  void end_watches();

 private:
  struct Watches;

  ::grpc::ServerUnaryReactor* Check(::grpc::CallbackServerContext* context,
                                    const ::grpc::health::v1::HealthCheckRequest* request,
                                    ::grpc::health::v1::HealthCheckResponse* response) override;
  ::grpc::ServerWriteReactor<::grpc::health::v1::HealthCheckResponse>* Watch(
      ::grpc::CallbackServerContext* context,
      const ::grpc::health::v1::HealthCheckRequest* request) override;

  SitePointer site_;
  std::shared_ptr<Watches> watches_;
};

}  // namespace gpulet::net::grpc_api
