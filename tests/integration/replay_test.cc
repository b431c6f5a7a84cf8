// One core, several hosts: what the daemon's core did under real sockets and a real clock, another
// core does again from the recorded events alone.
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"

namespace gpulet::testing {
namespace {

struct Recorded {
  serve::FrontendEvent event;
  Time time;
  std::vector<std::string> effects;
};

std::string told(const serve::ReplyToClient& effect) {
  return "reply " + std::to_string(effect.reply.tag) + " " + effect.reply.status.to_string() +
         " batch " + std::to_string(effect.reply.batch_size);
}
std::string told(const serve::TellBackend& effect) {
  std::string text = "backend " + std::to_string(effect.backend.value) + " " +
                     std::to_string(effect.command.index());
  if (const auto* batch = std::get_if<Batch>(&effect.command)) {
    text += " batch " + std::to_string(batch->id.value) + " gpulet " +
            std::to_string(batch->gpulet.value) + " " + batch->model + " x" +
            std::to_string(batch->count) + " within " + std::to_string(batch->start_within.count());
  } else if (const auto* create = std::get_if<serve::CreateGpulet>(&effect.command)) {
    text += " create " + std::to_string(create->id.value) + " size " +
            std::to_string(create->size.percent);
  }
  return text;
}
std::string told(const serve::SendModelFile& effect) { return "model " + effect.sha256; }
std::string told(const serve::DropBackend& effect) { return "drop " + effect.reason.to_string(); }
std::string told(const serve::MakePlan& effect) {
  std::string text = "plan " + std::to_string(effect.number);
  for (const schedule::ModelDemand& demand : effect.demands) {
    text += " " + demand.name + "=" + std::to_string(demand.rate);
  }
  return text;
}
std::string told(const serve::Note& effect) { return "note " + effect.text; }
std::string told(const serve::Drained&) { return "drained"; }

std::vector<std::string> told(const serve::FrontendEffects& effects) {
  std::vector<std::string> texts;
  for (const serve::FrontendEffect& effect : effects) {
    texts.push_back(std::visit([](const auto& one) { return told(one); }, effect));
  }
  return texts;
}

TEST(ReplayTest, CoreUnderTheDaemonAndUnderARecordedClockDoTheSame) {
  std::mutex mutex;
  std::vector<Recorded> record;
  frontend::Setup setup;
  Time started;
  {
    Cluster cluster(
        {{"a", 4, 150, 60}, {"b", 3, 200, 40}},
        [&](const serve::FrontendEvent& event, Time time, const serve::FrontendEffects& effects) {
          const std::lock_guard lock(mutex);
          record.push_back({event, time, told(effects)});
        });
    setup = cluster.setup();
    started = cluster.started_at();
    cluster.add_backend("n0");
    cluster.add_backend("n1");
    cluster.wait_until_serving();
    StreamClient client(cluster.client_port());
    const std::uint64_t middle = client.load(byte_request("a", 0), 80, std::chrono::seconds(2), 1,
                                             1, std::chrono::seconds(5));
    client.load(byte_request("b", 0), 50, std::chrono::seconds(1), middle, 2,
                std::chrono::seconds(5));
  }
  ASSERT_GT(record.size(), 200U);

  serve::FrontendCore core(frontend::core_options(setup), setup.models, setup.profiles, started);
  std::size_t batches = 0;
  for (std::size_t i = 0; i < record.size(); ++i) {
    serve::FrontendEffects effects;
    core.on(record[i].event, record[i].time, effects);
    ASSERT_EQ(told(effects), record[i].effects) << "at event " << i;
    for (const serve::FrontendEffect& effect : effects) {
      const auto* tell = std::get_if<serve::TellBackend>(&effect);
      if (tell != nullptr && std::holds_alternative<Batch>(tell->command)) ++batches;
    }
  }
  EXPECT_GT(batches, 50U);
}

}  // namespace
}  // namespace gpulet::testing
