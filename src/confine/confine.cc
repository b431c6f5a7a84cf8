#include "gpulet/confine/confine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <system_error>

#include "gpulet/base/files.h"

namespace gpulet::confine {

// ---- Network namespace

namespace {

bool write_line(const char* file, const std::string& line) {
  const FileDescriptor out(::open(file, O_WRONLY | O_CLOEXEC));
  return out.valid() &&
         ::write(out.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

// The creator of a user namespace has all capabilities in it.
void drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
  ::syscall(SYS_capset, &header, none.data());
}

// Maps only the own user and group, to themselves, so that the process keeps them.
void map_own_ids(uid_t user, gid_t group) {
  const auto one = [](auto id) { return fmt::format("{} {} 1", id, id); };
  write_line("/proc/self/setgroups", "deny");
  write_line("/proc/self/uid_map", one(user));
  write_line("/proc/self/gid_map", one(group));
}

}  // namespace

std::string network_namespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/net", error).string();
}

Status leave_network(std::string_view outside) {
  const auto own = network_namespace();
  if (!own.empty() && !outside.empty() && own != outside) return {};
  if (::unshare(CLONE_NEWNET) == 0) return {};
  const int as_itself = errno;
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    const std::string in_user_namespace = std::strerror(errno);
    return {StatusCode::unavailable,
            fmt::format("cannot create a network namespace, neither directly ({}) nor in a user "
                        "namespace ({})",
                        std::strerror(as_itself), in_user_namespace)};
  }
  map_own_ids(user, group);
  drop_capabilities();
  return {};
}

// ---- System call filters

namespace {

// LeakSanitizer inspects the process from a helper process, and a program symbolises its reports.
// So builds with a sanitizer keep these calls; they are not used for serving.
#if defined(GPULET_SANITIZED)
constexpr bool kMayStartProcesses = true;
#else
constexpr bool kMayStartProcesses = false;
#endif

constexpr std::array kNeverNeeded{
    // Other processes.
    "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp",
    "pidfd_getfd", "pidfd_send_signal", "migrate_pages", "tkill", "perf_event_open",
    // Namespaces and file systems.
    "setns", "unshare", "mount", "umount", "umount2", "pivot_root", "chroot", "move_mount",
    "open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "mknod", "mknodat",
    "name_to_handle_at", "open_by_handle_at", "fanotify_init", "quotactl", "quotactl_fd", "acct",
    // Kernel keys.
    "add_key", "request_key", "keyctl",
    // Kernel interfaces with a history of vulnerabilities that no model needs.
    "bpf", "userfaultfd", "modify_ldt", "uselib", "vhangup", "lookup_dcookie", "nfsservctl",
    // The machine.
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot",
    "swapon", "swapoff", "sethostname", "setdomainname", "settimeofday", "stime", "clock_settime",
    "adjtimex", "clock_adjtime", "clock_adjtime64", "clock_settime64", "iopl", "ioperm", "syslog"};

// Allowed in builds with a sanitizer.
constexpr std::array kStartOrLookAtProcesses{"execve", "execveat", "fork", "vfork", "ptrace"};

// Refused with ENOSYS: libraries then use older calls.
constexpr std::array kMissing{"io_uring_setup", "io_uring_enter", "io_uring_register"};

constexpr std::array kSockets{"socket", "socketpair", "connect", "bind",
                              "listen", "accept",     "accept4"};

// System V objects and message queues outlive their process, too.
constexpr std::array kNewFiles{"creat",  "mkdir",  "mkdirat", "symlink", "symlinkat", "link",
                               "linkat", "shmget", "msgget",  "semget",  "mq_open"};

// A condition on an argument. For SCMP_CMP_MASKED_EQ, `value` is the mask.
scmp_arg_cmp argument(unsigned number, scmp_compare how, scmp_datum_t value,
                      scmp_datum_t masked = 0) {
  return {number, how, value, masked};
}

class Filter {
 public:
  Filter() : context_(::seccomp_init(SCMP_ACT_ALLOW), &::seccomp_release) {
    if (context_ == nullptr) {
      failure_ = {StatusCode::unavailable, "libseccomp supports no filter on this machine"};
      return;
    }
    note(::seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_TSYNC, 1), "other threads");
  }

  // Refuses the call where the condition holds; without one, always. Ignores calls that this
  // machine does not have.
  void refuse(const char* name, int error, std::optional<scmp_arg_cmp> condition = {}) {
    if (!failure_.ok()) return;
    const int call = ::seccomp_syscall_resolve_name(name);
    if (call < 0) return;
    note(::seccomp_rule_add_array(context_.get(), SCMP_ACT_ERRNO(static_cast<std::uint32_t>(error)),
                                  call, condition ? 1 : 0, condition ? &*condition : nullptr),
         name);
  }

  [[nodiscard]] Status load() {
    if (failure_.ok()) note(::seccomp_load(context_.get()), "loading it");
    return failure_;
  }

 private:
  void note(int result, const char* what) {
    if (result >= 0 || !failure_.ok()) return;
    failure_ = {
        StatusCode::unavailable,
        fmt::format("cannot install the system call filter: {}: {}", what, std::strerror(-result))};
  }

  const std::unique_ptr<void, decltype(&::seccomp_release)> context_;
  Status failure_;
};

void refuse_processes(Filter& filter) {
  if (kMayStartProcesses) return;
  for (const char* const name : kStartOrLookAtProcesses) filter.refuse(name, EPERM);
  // clone with this flag creates a thread. The flags of clone3 are in memory, which a filter cannot
  // read; the C library falls back to clone.
  filter.refuse("clone", EPERM, argument(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
  filter.refuse("clone3", ENOSYS);
}

// A process may signal itself: abort() does.
void refuse_signals_to_others(Filter& filter) {
  const auto own = static_cast<scmp_datum_t>(::getpid());
  for (const char* const name : {"kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"})
    filter.refuse(name, EPERM, argument(0, SCMP_CMP_NE, own));
}

}  // namespace

Status filter_system_calls() {
  Filter filter;
  for (const char* const name : kNeverNeeded) filter.refuse(name, EPERM);
  for (const char* const name : kMissing) filter.refuse(name, ENOSYS);
  refuse_processes(filter);
  refuse_signals_to_others(filter);
  for (const char* const name : {"socket", "socketpair"})
    filter.refuse(name, EPERM, argument(0, SCMP_CMP_NE, AF_UNIX));
  // TIOCSTI inserts input into the terminal of the backend.
  constexpr scmp_datum_t kRequest = 0xffffffff;
  filter.refuse("ioctl", EPERM, argument(1, SCMP_CMP_MASKED_EQ, kRequest, TIOCSTI));
  // Limits and priorities of other processes. A process may lower its own.
  filter.refuse("prlimit64", EPERM, argument(0, SCMP_CMP_NE, 0));
  filter.refuse("setpriority", EPERM, argument(0, SCMP_CMP_NE, PRIO_PROCESS));
  return filter.load();
}

Status filter_sockets_and_new_files() {
  Filter filter;
  for (const char* const name : kSockets) filter.refuse(name, EPERM);
  for (const char* const name : kNewFiles) filter.refuse(name, EPERM);
  // O_TMPFILE includes O_DIRECTORY, which alone is harmless.
  for (const auto flag : {scmp_datum_t{O_CREAT}, scmp_datum_t{O_TMPFILE}}) {
    filter.refuse("open", EPERM, argument(1, SCMP_CMP_MASKED_EQ, flag, flag));
    filter.refuse("openat", EPERM, argument(2, SCMP_CMP_MASKED_EQ, flag, flag));
  }
  filter.refuse("openat2", ENOSYS);  // its flags are in memory, which a filter cannot read
  return filter.load();
}

void close_to_others() { ::prctl(PR_SET_DUMPABLE, 0UL, 0UL, 0UL, 0UL); }

bool others_may_enter(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path at = fs::canonical(folder, error);
  while (!error) {
    const fs::perms permissions = fs::status(at, error).permissions();
    if (error || (permissions & fs::perms::others_exec) == fs::perms::none) return false;
    if (at == at.root_path()) return true;
    at = at.parent_path();
  }
  return false;
}

// ---- Trial

namespace {

constexpr int kNoNetworkNamespace = 1;
constexpr int kNoFilter = 2;

int missing_parts() {
  int missing = leave_network({}).ok() ? 0 : kNoNetworkNamespace;
  if (!filter_system_calls().ok()) missing |= kNoFilter;
  return missing;
}

}  // namespace

InForce try_in_child() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(missing_parts());
  int status = 0;
  pid_t ended = -1;
  while (child > 0 && (ended = ::waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  const bool reported = ended == child && WIFEXITED(status);
  const int missing = reported ? WEXITSTATUS(status) : kNoNetworkNamespace | kNoFilter;
  const auto part = [missing](int bit) {
    return (missing & bit) == 0 ? Status()
                                : Status(StatusCode::unavailable, "this system refuses it");
  };
  return {part(kNoNetworkNamespace), part(kNoFilter)};
}

std::string describe(const InForce& in_force) {
  const auto part = [](const Status& status, const char* in, const char* missing) {
    return status.ok() ? in : fmt::format("no {} ({})", missing, status.message());
  };
  return fmt::format(
      "{}, {}", part(in_force.system_calls, "a filter of system calls", "filter of system calls"),
      part(in_force.network, "a network namespace of its own", "network namespace"));
}

}  // namespace gpulet::confine
