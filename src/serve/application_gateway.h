// ApplicationGateway: serves requests for applications. It checks them, runs the applications'
// graphs (Applications), and sends their calls to the models' queues as requests of the engine's
// own client (kEngine). Pure; one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "serve/admission.h"
#include "serve/application_runner.h"

namespace gpulet::serve {

class ApplicationGateway {
 public:
  // All outlive it.
  struct Dependencies {
    ApplicationRunner& applications;
    Dispatcher& dispatcher;
    Demands& demands;
    ModelRegistry& models;
    Admission& admission;
    InflightLimiter& limiter;
    TraceSampler& traces;
    ResponseWriter& responses;
  };

  ApplicationGateway(const FrontendOptions& options, const Dependencies& dependencies)
      : options_(options), core_(dependencies) {}

  // Serves these applications from now on. Returns whether they differ from before.
  bool replace(const ApplicationList& applications, Time now);

  // Returns false if the request is not for an application.
  bool on_request(RequestReceived& event, Time now, FrontendEffects& effects);
  void on_client_disconnected(ClientId client, Time now, FrontendEffects& effects);
  void on_step_completed(StepCompleted event, Time now, FrontendEffects& effects);
  // Answers the runs whose time is over.
  void answer_overdue(Time now, FrontendEffects& effects);
  // Gives the runs the answers to their calls, and makes the calls that follow.
  void deliver_call_answers(Time now, FrontendEffects& effects);

  // Why the application is not served, for its clients. Empty: it is served or may be soon.
  [[nodiscard]] std::string why_unserved(const Application& application) const;
  [[nodiscard]] ModelState state_of(const Application& application) const;
  // The models that its graph calls, with the number of calls.
  [[nodiscard]] static std::map<std::string, std::size_t> calls_of(const Application& application);

 private:
  void carry_out(ApplicationOutput&& output, Time now, FrontendEffects& effects);
  void call(ModelToCall call, Time now, FrontendEffects& effects);

  const FrontendOptions& options_;
  const Dependencies core_;
};

}  // namespace gpulet::serve
