#include "backend/proxy_pool.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "gpulet/net/clock.h"

namespace gpulet::backend {
ProxyPool::ProxyPool(const net::asio::any_io_executor& executor,
                     const std::set<std::filesystem::path>& programs, std::uint32_t warm_proxies,
                     std::optional<ProxyUser> user, ProxyConfinement confinement)
    : executor_(executor),
      user_(std::move(user)),
      confinement_(std::move(confinement)),
      timer_(executor) {
  serve::WarmPoolOptions options;
  options.wanted = warm_proxies;
  for (const auto& program : programs) {
    shelves_.emplace(program, Shelf{serve::WarmPool(options), {}});
  }
  fill();
}

ProxyPool::~ProxyPool() = default;

Result<ProxyPool::Taken> ProxyPool::take(const std::filesystem::path& program,
                                         ProxyCallbacks callbacks) {
  const auto found = shelves_.find(program);
  if (found != shelves_.end() && !found->second.warm.empty()) {
    auto& shelf = found->second;
    auto warm = std::move(shelf.warm.front());
    shelf.warm.erase(shelf.warm.begin());
    shelf.plan.taken(warm.idle);
    warm.process->hand_over(std::move(callbacks));
    return Taken{std::move(warm.process), true};
  }
  auto started = ProxyProcess::start(executor_, {program, false, user_, {}, confinement_},
                                     std::move(callbacks));
  if (!started.ok()) return started.status();
  return Taken{std::move(started).value(), false};
}

void ProxyPool::loading(bool any) {
  for (auto& [program, shelf] : shelves_) shelf.plan.loading(any, net::now());
  fill();
}

void ProxyPool::close() {
  closed_ = true;
  timer_.cancel();
  for (auto& [program, shelf] : shelves_) shelf.warm.clear();
}

std::vector<pid_t> ProxyPool::processes() const {
  std::vector<pid_t> processes;
  for (const auto& [program, shelf] : shelves_) {
    for (const auto& warm : shelf.warm) {
      if (warm.idle) processes.push_back(warm.process->pid());
    }
  }
  return processes;
}

void ProxyPool::fill() {
  if (closed_) return;
  for (auto& [program, shelf] : shelves_) {
    if (shelf.plan.wants_another(net::now())) start_one(program, shelf);
  }
  wake_in_time();
}

void ProxyPool::start_one(const std::filesystem::path& program, Shelf& shelf) {
  shelf.plan.started();
  // The process is known to its callbacks by its id, which they learn below: none comes before.
  const auto process_id = std::make_shared<pid_t>(0);
  ProxyCallbacks callbacks;
  callbacks.on_idle = [this, program, process_id] { on_idle(program, *process_id); };
  callbacks.on_exit = [this, program, process_id](const Status& reason) {
    on_exit(program, *process_id, reason);
  };
  auto started = ProxyProcess::start(executor_, {program, true, user_, {}, confinement_},
                                     std::move(callbacks));
  if (!started.ok()) {
    spdlog::warn("warm proxy: {}", started.status().to_string());
    shelf.plan.died(false, net::now());
    return;
  }
  *process_id = started.value()->pid();
  shelf.warm.push_back({std::move(started).value(), false});
}

void ProxyPool::on_idle(const std::filesystem::path& program, pid_t process) {
  auto& shelf = shelves_.at(program);
  for (auto& warm : shelf.warm) {
    if (warm.process->pid() != process) continue;
    warm.idle = true;
    shelf.plan.idle();
    spdlog::info("warm proxy: process {} of {} is ready", process, program.filename().string());
  }
  fill();
}

void ProxyPool::on_exit(const std::filesystem::path& program, pid_t process, const Status& reason) {
  auto& shelf = shelves_.at(program);
  const auto found =
      std::find_if(shelf.warm.begin(), shelf.warm.end(),
                   [process](const Warm& warm) { return warm.process->pid() == process; });
  if (found == shelf.warm.end()) return;
  const auto why = reason.ok() ? "it exited" : reason.message();
  spdlog::warn("warm proxy: process {} is gone: {}", process, why);
  shelf.plan.died(found->idle, net::now());
  shelf.warm.erase(found);
  fill();
}

void ProxyPool::wake_in_time() {
  auto next = kNever;
  for (const auto& [program, shelf] : shelves_) next = std::min(next, shelf.plan.next_look());
  timer_.cancel();
  if (next == kNever) return;
  timer_.set(next, [this] { fill(); });
}

}  // namespace gpulet::backend
