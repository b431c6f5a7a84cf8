// Admission: queues requests for models, forwards them where another frontend serves the model, or
// refuses them. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serve/cluster/leadership.h"
#include "serve/requests/arrivals.h"
#include "serve/requests/inflight_limiter.h"

namespace gpulet::serve {

class Admission {
 public:
  // All outlive it.
  Admission(const FrontendOptions& options, Dispatch& dispatch, ModelRegistry& models,
            Arrivals& arrivals, InflightLimiter& limiter, const Leadership& leadership,
            Forwarder& forwarder, Entries& entries)
      : options_(options),
        dispatch_(dispatch),
        models_(models),
        arrivals_(arrivals),
        limiter_(limiter),
        leadership_(leadership),
        forwarder_(forwarder),
        entries_(entries) {}

  // A client's request for the model, which fits it.
  void admit(const RequestReceived& event, NamedModel& known, Request&& request, Time now,
             FrontendEffects& effects);
  // A call of an application, which another frontend may serve.
  void call(const std::string& name, NamedModel& known, Request&& request, Time now,
            FrontendEffects& effects);
  // Queues the requests that returned from the Forwarder.
  void take_back(std::vector<LocalRequest> requests, Time now, FrontendEffects& effects);
  // Forgets the request if it still waits, here or at another frontend.
  void withdraw(std::string_view model, ClientId client, std::uint64_t tag,
                FrontendEffects& effects);

  // As Arrivals::expect().
  bool expect(const std::string& name, NamedModel& known) { return arrivals_.expect(name, known); }
  // This frontend serves all requests for the model.
  [[nodiscard]] bool serves_all_of(const std::string& name) const {
    return forwarder_.routes().here(name) && !forwarder_.routes().divided(name);
  }
  // As InflightLimiter::enter().
  [[nodiscard]] Result<InflightLimiter::Permit> enter(std::size_t bytes) {
    return limiter_.enter(bytes);
  }

  // Refuses all further requests, unless other frontends take over (Drain::hands_over).
  void start_draining(bool hands_over) {
    draining_ = true;
    refuses_ = !hands_over;
  }
  [[nodiscard]] bool draining() const { return draining_; }
  [[nodiscard]] bool refuses() const { return refuses_; }
  [[nodiscard]] static Status refusal_while_draining();

 private:
  void admit_here(const std::string& name, NamedModel& known, Request&& request, bool delayed,
                  Time now, DispatchOutput& output);
  // Queues the request, or refuses it. `was_asleep`: the result of expect().
  void enqueue(const std::string& name, NamedModel& known, Request&& request, bool was_asleep,
               Time now, DispatchOutput& output);

  const FrontendOptions& options_;
  Dispatch& dispatch_;
  ModelRegistry& models_;
  Arrivals& arrivals_;
  InflightLimiter& limiter_;
  const Leadership& leadership_;
  Forwarder& forwarder_;
  Entries& entries_;
  bool draining_ = false;
  bool refuses_ = false;
};

}  // namespace gpulet::serve
