/* jail: two forks. The first enters the namespaces; the second is the first process of the new ones, builds the rest
 * and becomes the program. Whatever goes wrong travels back through a pipe that exec closes. Between fork and exec only
 * system calls are made: other threads may have held any lock. */
#include "post/reward/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"

#define NOBODY 65534
#define FILES_MAX 64

#if defined(__x86_64__)
#define JAIL_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define JAIL_ARCH AUDIT_ARCH_AARCH64
#else
#error "the jail knows the system calls of x86-64 and arm64"
#endif

/* What went wrong, through the pipe. */
struct trouble {
    char part[32];
    int code;
};

static void fail_with(int pipe, const char *part)
{
    struct trouble trouble = {.code = errno};

    strncpy(trouble.part, part, sizeof(trouble.part) - 1);
    (void)!write(pipe, &trouble, sizeof(trouble));
    _exit(127);
}

/* ---- system calls ------------------------------------------------------------------------------------------------ */

#define DENY(number)                                                                                                   \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

/* Sockets, new processes, and what reaches into the kernel or into other processes. Threads are allowed: clone with
 * CLONE_THREAD. clone3 hides its flags, so it is not there, and libraries take clone. */
static const struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, JAIL_ARCH, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef __x86_64__
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), /* the x32 calls */
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    DENY(SYS_fork),
    DENY(SYS_vfork),
#endif
    DENY(SYS_socket),
    DENY(SYS_socketpair),
    DENY(SYS_connect),
    DENY(SYS_bind),
    DENY(SYS_listen),
    DENY(SYS_accept4),
    DENY(SYS_ptrace),
    DENY(SYS_process_vm_readv),
    DENY(SYS_process_vm_writev),
    DENY(SYS_mount),
    DENY(SYS_umount2),
    DENY(SYS_pivot_root),
    DENY(SYS_chroot),
    DENY(SYS_unshare),
    DENY(SYS_setns),
    DENY(SYS_open_tree),
    DENY(SYS_move_mount),
    DENY(SYS_fsopen),
    DENY(SYS_mount_setattr),
    DENY(SYS_open_by_handle_at),
    DENY(SYS_bpf),
    DENY(SYS_perf_event_open),
    DENY(SYS_userfaultfd),
    DENY(SYS_keyctl),
    DENY(SYS_add_key),
    DENY(SYS_request_key),
    DENY(SYS_io_uring_setup),
    DENY(SYS_kexec_load),
    DENY(SYS_init_module),
    DENY(SYS_finit_module),
    DENY(SYS_delete_module),
    DENY(SYS_reboot),
    DENY(SYS_swapon),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])), /* little-endian: the low half */
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

static void limit_calls(int pipe)
{
    struct sock_fprog program = {.len = (unsigned short)ASH_COUNT(rules),
                                 .filter = (struct sock_filter *)(uintptr_t)rules};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) fail_with(pipe, "no new privileges");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0) fail_with(pipe, "seccomp");
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static void set_limit(int pipe, int what, rlim_t most)
{
    struct rlimit limit = {most, most};

    if (setrlimit((__rlimit_resource_t)what, &limit) < 0) fail_with(pipe, "limits");
}

/* Everything that can be seen becomes read-only, and no device is one, except for /dev/null; /tmp is new, small, and
 * forgotten. */
static void make_root(int pipe, size_t file_bytes)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    struct mount_attr null_attr = {.attr_clr = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV};
    char size[48];

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) fail_with(pipe, "private mounts");
    if (mount("/dev/null", "/dev/null", NULL, MS_BIND, NULL) < 0) fail_with(pipe, "/dev/null");
    if (syscall(SYS_mount_setattr, AT_FDCWD, "/", 0x8000 /* AT_RECURSIVE */, &attr, sizeof(attr)) < 0)
        fail_with(pipe, "a read-only root");
    if (syscall(SYS_mount_setattr, AT_FDCWD, "/dev/null", 0, &null_attr, sizeof(null_attr)) < 0)
        fail_with(pipe, "/dev/null");
    snprintf(size, sizeof(size), "size=%zu,nr_inodes=1024,mode=1777", file_bytes);
    if (mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, size) < 0) fail_with(pipe, "its own /tmp");
}

static void become_program(const struct ash_jail_opts *opts, int pipe)
{
    static char *const environment[] = {(char *)(uintptr_t) "PATH=/usr/local/bin:/usr/bin:/bin",
                                        (char *)(uintptr_t) "LANG=C.UTF-8", (char *)(uintptr_t) "HOME=/tmp", NULL};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    make_root(pipe, opts->file_bytes);
    if (dup2(opts->in, 0) < 0 || dup2(opts->out, 1) < 0 || dup2(opts->errors, 2) < 0) fail_with(pipe, "its streams");
    if (dup3(pipe, 3, O_CLOEXEC) < 0 && pipe != 3) fail_with(pipe, "its streams");
    pipe = 3;
    fcntl(pipe, F_SETFD, FD_CLOEXEC);
    syscall(SYS_close_range, 4U, ~0U, 0U);
    set_limit(pipe, RLIMIT_CORE, 0);
    set_limit(pipe, RLIMIT_FSIZE, opts->file_bytes);
    set_limit(pipe, RLIMIT_NOFILE, FILES_MAX);
    set_limit(pipe, RLIMIT_AS, opts->memory_bytes);
    signal(SIGPIPE, SIG_DFL);
    limit_calls(pipe);
    execvpe(opts->words[0], opts->words, environment);
    fail_with(pipe, "exec");
}

static int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t count = fd >= 0 ? write(fd, text, strlen(text)) : -1;

    if (fd >= 0) close(fd);
    return count == (ssize_t)strlen(text) ? 0 : -1;
}

/* Map the caller's uid to nobody (65534) in the user namespace: its rights end there. */
static void become_nobody(int pipe, uid_t uid, gid_t gid)
{
    char text[64];

    snprintf(text, sizeof(text), "%d %u 1", NOBODY, uid);
    if (write_text("/proc/self/uid_map", text) < 0) fail_with(pipe, "its user");
    if (write_text("/proc/self/setgroups", "deny") < 0) fail_with(pipe, "its group");
    snprintf(text, sizeof(text), "%d %u 1", NOBODY, gid);
    if (write_text("/proc/self/gid_map", text) < 0) fail_with(pipe, "its group");
}

static void enter(const struct ash_jail_opts *opts, int pipe)
{
    uid_t uid = getuid();
    gid_t gid = getgid();
    int status = 0;
    pid_t inside;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
        fail_with(pipe, "namespaces");
    become_nobody(pipe, uid, gid);
    inside = fork();
    if (inside < 0) fail_with(pipe, "a process");
    if (inside == 0) become_program(opts, pipe);
    syscall(SYS_close_range, 0U, ~0U, 0U); /* the program's ends are the program's alone */
    while (waitpid(inside, &status, 0) < 0 && errno == EINTR)
        continue;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int ash_jail_start(const struct ash_jail_opts *opts, pid_t *pid_out, struct ash_err *err)
{
    struct trouble trouble = {{0}, 0};
    int pipe[2];
    ssize_t count;
    pid_t pid;

    if (pipe2(pipe, O_CLOEXEC) < 0) return ash_err_set(err, -errno, "no pipe for a jail: %s", strerror(errno));
    pid = fork();
    if (pid == 0) enter(opts, pipe[1]);
    close(pipe[1]);
    if (pid < 0) {
        close(pipe[0]);
        return ash_err_set(err, -EAGAIN, "no process for a reward program");
    }
    do {
        count = read(pipe[0], &trouble, sizeof(trouble));
    } while (count < 0 && errno == EINTR);
    close(pipe[0]);
    if (count == 0) {
        *pid_out = pid;
        return 0;
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    if (count == sizeof(trouble) && strcmp(trouble.part, "exec") == 0)
        return ash_err_set(err, -trouble.code, "the reward program '%s' cannot be started: %s", opts->words[0],
                           strerror(trouble.code));
    return ash_err_set(err, -ENOTSUP,
                       "a reward program runs in its own namespaces, and the kernel refuses a part (%s: %s): allow "
                       "user namespaces (user.max_user_namespaces), or use another reward",
                       trouble.part, strerror(trouble.code));
}
