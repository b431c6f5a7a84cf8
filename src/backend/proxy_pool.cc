#include "backend/proxy_pool.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

namespace gpulet::backend {

Status lack_of_room(const std::exception& failure) {
  return {StatusCode::unavailable, std::string("cannot start a process: ") + failure.what()};
}

ProxyPool::ProxyPool(const net::asio::any_io_executor& executor,
                     const std::set<std::filesystem::path>& programs, std::uint32_t warm_proxies,
                     ProxyOptions options)
    : executor_(executor),
      warm_proxies_(warm_proxies),
      options_(std::move(options)),
      timer_(executor) {
  for (const auto& program : programs) pool_of(program);
  fill();
}

ProxyPool::ProgramPool& ProxyPool::pool_of(const std::filesystem::path& program) {
  WarmPoolOptions options;
  options.size = warm_proxies_;
  return pools_.try_emplace(program, ProgramPool{WarmPool(options), {}}).first->second;
}

Result<std::unique_ptr<ProxyProcess>> ProxyPool::start_process(const std::filesystem::path& program,
                                                               bool in_background,
                                                               ProxyCallbacks callbacks) const {
  ProxyOptions options = options_;
  options.program = program;
  options.in_background = in_background;
  try {
    return ProxyProcess::start(executor_, options, std::move(callbacks));
  } catch (const std::exception& failure) {
    return lack_of_room(failure);
  }
}

Result<ProxyPool::Taken> ProxyPool::take(const std::filesystem::path& program,
                                         ProxyCallbacks callbacks) {
  auto& pool = pool_of(program);
  if (!pool.warm.empty()) {
    auto warm = std::move(pool.warm.front());
    pool.warm.erase(pool.warm.begin());
    pool.plan.taken(warm.idle);
    warm.process->set_callbacks(std::move(callbacks));
    return Taken{std::move(warm.process), "warm"};
  }
  GPULET_TRY(auto started, start_process(program, false, std::move(callbacks)));
  return Taken{std::move(started), "new"};
}

void ProxyPool::set_loading(bool any) {
  for (auto& [program, pool] : pools_) pool.plan.loading(any, net::now());
  fill();
}

void ProxyPool::close() {
  closed_ = true;
  timer_.cancel();
  for (auto& [program, pool] : pools_) pool.warm.clear();
}

std::vector<pid_t> ProxyPool::idle_processes() const {
  std::vector<pid_t> processes;
  for (const auto& [program, pool] : pools_) {
    for (const auto& warm : pool.warm) {
      if (warm.idle) processes.push_back(warm.process->pid());
    }
  }
  return processes;
}

void ProxyPool::fill() {
  if (closed_) return;
  for (auto& [program, pool] : pools_) {
    if (pool.plan.should_start(net::now())) start_one(program, pool);
  }
  set_timer();
}

void ProxyPool::start_one(const std::filesystem::path& program, ProgramPool& pool) {
  pool.plan.started();
  // The callbacks identify the process by its id. It is set below, before any callback runs.
  const auto process_id = std::make_shared<pid_t>(0);
  ProxyCallbacks callbacks;
  callbacks.on_idle = [this, program, process_id] { on_idle(program, *process_id); };
  callbacks.on_exit = [this, program, process_id](const Status& reason) {
    on_exit(program, *process_id, reason);
  };
  auto started = start_process(program, true, std::move(callbacks));
  if (!started.ok()) {
    spdlog::warn("warm proxy: {}", started.status().to_string());
    pool.plan.died(false, net::now());
    return;
  }
  *process_id = started.value()->pid();
  pool.warm.push_back({std::move(started).value(), false});
}

void ProxyPool::on_idle(const std::filesystem::path& program, pid_t process) {
  auto& pool = pools_.at(program);
  for (auto& warm : pool.warm) {
    if (warm.process->pid() != process) continue;
    warm.idle = true;
    pool.plan.idle();
    spdlog::info("warm proxy: process {} of {} is ready", process, program.filename().string());
  }
  fill();
}

void ProxyPool::on_exit(const std::filesystem::path& program, pid_t process, const Status& reason) {
  auto& pool = pools_.at(program);
  const auto found = std::find_if(pool.warm.begin(), pool.warm.end(), [process](const Warm& warm) {
    return warm.process->pid() == process;
  });
  if (found == pool.warm.end()) return;
  const auto why = reason.ok() ? "it exited" : reason.message();
  spdlog::warn("warm proxy: process {} has ended: {}", process, why);
  pool.plan.died(found->idle, net::now());
  pool.warm.erase(found);
  fill();
}

void ProxyPool::set_timer() {
  auto next = kNever;
  for (const auto& [program, pool] : pools_) next = std::min(next, pool.plan.next_check());
  timer_.cancel();
  if (next == kNever) return;
  timer_.set(next, [this] { fill(); });
}

}  // namespace gpulet::backend
