// RequestIntake: checks clients' requests for models against the models' descriptions, and makes
// the requests that Admission queues. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "serve/requests/admission.h"

namespace gpulet::serve {

// Whether the request's tensors and timeout fit the model. Fails (invalid), naming the difference.
// `kept_bytes`: of the payload that the request comes without (Forward); 0: it has its payload.
[[nodiscard]] Status check_request(const InferRequest& request, const ServedModel& model,
                                   std::uint64_t kept_bytes = 0);

// Where a request for a dynamic model belongs.
struct BucketChoice {
  std::string name;  // of the bucket; of the longest one where the request does not fit
  std::int64_t length = 0;
  Status status{};  // invalid: why it does not fit
};
[[nodiscard]] BucketChoice choose_bucket(const DynamicModel& model, const InferRequest& request);

class RequestIntake {
 public:
  // All outlive it.
  RequestIntake(const FrontendOptions& options, Dispatch& dispatch, ModelRegistry& models,
                TraceSampler& traces, Admission& admission)
      : options_(options),
        dispatch_(dispatch),
        models_(models),
        traces_(traces),
        admission_(admission) {}

  // A request for a model.
  void on_request(RequestReceived event, Time now, FrontendEffects& effects);

 private:
  // The model that takes a request, which is a bucket of it where the model is dynamic.
  struct Target {
    NamedModel* model = nullptr;  // null: the name is not served
    std::int64_t length = 0;      // 0: the model has fixed shapes
    Status status{};              // why the request does not fit
  };
  [[nodiscard]] Target target_of(const RequestReceived& event) const;
  [[nodiscard]] Request request_for(const RequestReceived& event, const ServedModel& model,
                                    Time now);

  const FrontendOptions& options_;
  Dispatch& dispatch_;
  ModelRegistry& models_;
  TraceSampler& traces_;
  Admission& admission_;
};

}  // namespace gpulet::serve
