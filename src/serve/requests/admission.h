// Admission: checks clients' requests for models, and queues or refuses them. InflightLimiter:
// bounds the requests that the frontend holds. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "serve/cluster/leadership.h"
#include "serve/dispatch/owner_figures.h"

namespace gpulet::serve {

// Bounds the number of requests that clients have in flight, and the bytes of their inputs.
class InflightLimiter {
 public:
  explicit InflightLimiter(InflightLimits limits)
      : limits_(limits), counts_(std::make_shared<Counts>()) {}

  // Counts a request for as long as it or a copy of it lives.
  using Permit = std::shared_ptr<const void>;
  // Fails (overloaded), naming the limit.
  [[nodiscard]] Result<Permit> enter(std::size_t bytes);

  [[nodiscard]] std::uint64_t requests() const { return counts_->requests; }
  [[nodiscard]] std::uint64_t bytes() const { return counts_->bytes; }

 private:
  struct Counts {
    std::uint64_t requests = 0;
    std::uint64_t bytes = 0;
  };

  InflightLimits limits_;
  std::shared_ptr<Counts> counts_;  // shared with every permit
};

// Whether the request's tensors and timeout fit the model. Fails (invalid), naming the difference.
[[nodiscard]] Status check_request(const InferRequest& request, const ServedModel& model);

// Where a request for a dynamic model belongs.
struct BucketChoice {
  std::string name;  // of the bucket; of the longest one where the request does not fit
  std::int64_t length = 0;
  Status status{};  // invalid: why it does not fit
};
[[nodiscard]] BucketChoice choose_bucket(const DynamicModel& model, const InferRequest& request);

class Admission {
 public:
  // All outlive it.
  struct Dependencies {
    Dispatcher& dispatcher;
    Demands& demands;
    ModelRegistry& models;
    InflightLimiter& limiter;
    TraceSampler& traces;
    PlanRequests& plan_requests;
    const Leadership& leadership;
    const RouteTable& routes;
    Forwarder& forwarder;
    OwnerFigures& figures;
    ResponseWriter& responses;
  };

  Admission(const FrontendOptions& options, const Dependencies& dependencies)
      : options_(options), core_(dependencies) {}

  // A request for a model.
  void on_request(RequestReceived event, Time now, FrontendEffects& effects);

  // Counts a request for the model that arrived or is about to, and requests a plan if no plan
  // expects it. Returns true if the model was asleep and no gpulet is ready.
  bool expect(const std::string& name, NamedModel& known);
  // Queues the request, or refuses it. `was_asleep`: the result of expect().
  void enqueue(const std::string& name, NamedModel& known, Request&& request, bool was_asleep,
               Time now, DispatchOutput& output);
  // The same for a call of an application, which another frontend may serve.
  void call(const std::string& name, NamedModel& known, Request&& request, Time now,
            FrontendEffects& effects);
  // Queues the requests that returned from the Forwarder.
  void take_back(std::vector<LocalRequest> requests, Time now, FrontendEffects& effects);

  // Refuses all further requests, unless other frontends take over (Drain::hands_over).
  void start_draining(bool hands_over) {
    draining_ = true;
    refuses_ = !hands_over;
  }
  [[nodiscard]] bool draining() const { return draining_; }
  [[nodiscard]] bool refuses() const { return refuses_; }
  [[nodiscard]] static Status refusal_while_draining();

 private:
  // The model that takes a request, which is a bucket of it where the model is dynamic.
  struct Target {
    NamedModel* model = nullptr;  // null: the name is not served
    std::int64_t length = 0;      // 0: the model has fixed shapes
    Status status{};              // why the request does not fit
  };
  [[nodiscard]] Target target_of(const RequestReceived& event) const;
  void admit(const RequestReceived& event, NamedModel& known, Request&& request, Time now,
             FrontendEffects& effects);
  void admit_here(const std::string& name, NamedModel& known, Request&& request, bool delayed,
                  Time now, DispatchOutput& output);

  const FrontendOptions& options_;
  const Dependencies core_;
  bool draining_ = false;
  bool refuses_ = false;
};

}  // namespace gpulet::serve
