// The filters of system calls.
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "gpulet/confine/confine.h"

namespace gpulet::confine {
namespace {

// LeakSanitizer looks at the process from a helper process, and reports are made readable by a
// program: builds with a sanitizer, which nobody serves with, keep those calls.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
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
    // Keys of the kernel.
    "add_key", "request_key", "keyctl",
    // Parts of the kernel with a history, that no model has a use for.
    "bpf", "userfaultfd", "modify_ldt", "uselib", "vhangup", "lookup_dcookie", "nfsservctl",
    // The machine.
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot",
    "swapon", "swapoff", "sethostname", "setdomainname", "settimeofday", "stime", "clock_settime",
    "adjtimex", "clock_adjtime", "clock_adjtime64", "clock_settime64", "iopl", "ioperm", "syslog"};

// What sanitizers keep.
constexpr std::array kStartOrLookAtProcesses{"execve", "execveat", "fork", "vfork", "ptrace"};

// Libraries that find these missing use what was there before.
constexpr std::array kMissing{"io_uring_setup", "io_uring_enter", "io_uring_register"};

constexpr std::array kSockets{"socket", "socketpair", "connect", "bind",
                              "listen", "accept",     "accept4"};

// Of the argument of that number. For SCMP_CMP_MASKED_EQ, `value` is the mask.
scmp_arg_cmp argument(unsigned number, scmp_compare how, scmp_datum_t value,
                      scmp_datum_t masked = 0) {
  return {number, how, value, masked};
}

class Filter {
 public:
  Filter() : context_(::seccomp_init(SCMP_ACT_ALLOW)) {
    if (context_ == nullptr) {
      failure_ = {StatusCode::unavailable, "libseccomp makes no filter for this machine"};
      return;
    }
    note(::seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_TSYNC, 1), "other threads");
  }

  // Where the condition on an argument holds; without one, always. A call that this machine's table
  // lacks needs no rule.
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
    failure_ = {StatusCode::unavailable,
                std::string("the filter of system calls: ") + what + ": " + std::strerror(-result)};
  }

  struct Release {
    void operator()(void* context) const { ::seccomp_release(context); }
  };
  std::unique_ptr<void, Release> context_;
  Status failure_;
};

void refuse_processes(Filter& filter) {
  if (kMayStartProcesses) return;
  for (const char* const name : kStartOrLookAtProcesses) filter.refuse(name, EPERM);
  // Threads are made by clone with this flag. The flags of clone3 lie in memory, which a filter
  // cannot read; the C library goes back to clone.
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
  // Typing into the terminal that the backend was started from.
  constexpr scmp_datum_t kRequest = 0xffffffff;
  filter.refuse("ioctl", EPERM, argument(1, SCMP_CMP_MASKED_EQ, kRequest, TIOCSTI));
  // Limits and priorities of others; of its own it may lower them.
  filter.refuse("prlimit64", EPERM, argument(0, SCMP_CMP_NE, 0));
  filter.refuse("setpriority", EPERM, argument(0, SCMP_CMP_NE, PRIO_PROCESS));
  return filter.load();
}

Status filter_sockets() {
  Filter filter;
  for (const char* const name : kSockets) filter.refuse(name, EPERM);
  return filter.load();
}

void close_to_others() { ::prctl(PR_SET_DUMPABLE, 0UL, 0UL, 0UL, 0UL); }

}  // namespace gpulet::confine
