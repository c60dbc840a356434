/* jail: two forks. The first enters the namespaces; the second is the first process of the new ones, builds the rest
 * and becomes the program. Whatever goes wrong travels back through a pipe that exec closes. Between fork and exec only
 * system calls are made: other threads may have held any lock. */
#include "post/reward/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"

#define NOBODY 65534
#define FILES_MAX 64

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

/* Sockets, new processes, and what reaches into the kernel or into other processes. */
static const int denied[] = {
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    SCMP_SYS(socket),
    SCMP_SYS(socketpair),
    SCMP_SYS(connect),
    SCMP_SYS(bind),
    SCMP_SYS(listen),
    SCMP_SYS(accept4),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(open_tree),
    SCMP_SYS(move_mount),
    SCMP_SYS(fsopen),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(kexec_load),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(reboot),
    SCMP_SYS(swapon),
};

/* Threads are allowed: clone with CLONE_THREAD. clone3 hides its flags, so it is not there, and libraries take clone. A
 * call of another architecture ends the process. */
static int add_rules(scmp_filter_ctx filter)
{
    int rc = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);

    for (size_t i = 0; rc == 0 && i < ASH_COUNT(denied); i++)
        rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), denied[i], 0);
    if (rc == 0) rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    if (rc == 0)
        rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                              SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
    return rc;
}

/* The rules as the kernel takes them, made before the fork. The caller frees program_out->filter. */
static int make_program(struct sock_fprog *program_out)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int fd = memfd_create("rules", MFD_CLOEXEC), rc = filter != NULL && fd >= 0 ? add_rules(filter) : -ENOMEM;
    off_t bytes;

    if (rc == 0) rc = seccomp_export_bpf(filter, fd);
    seccomp_release(filter);
    bytes = rc == 0 ? lseek(fd, 0, SEEK_END) : 0;
    program_out->filter = malloc((size_t)bytes + 1);
    program_out->len = (unsigned short)((size_t)bytes / sizeof(*program_out->filter));
    if (rc == 0 && (program_out->filter == NULL || pread(fd, program_out->filter, (size_t)bytes, 0) != bytes))
        rc = -ENOMEM;
    if (fd >= 0) close(fd);
    return rc;
}

static void limit_calls(const struct sock_fprog *program, int pipe)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) fail_with(pipe, "no new privileges");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) < 0) fail_with(pipe, "seccomp");
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

static void become_program(const struct ash_jail_opts *opts, const struct sock_fprog *rules, int pipe)
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
    limit_calls(rules, pipe);
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

static void enter(const struct ash_jail_opts *opts, const struct sock_fprog *rules, int pipe)
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
    if (inside == 0) become_program(opts, rules, pipe);
    syscall(SYS_close_range, 0U, ~0U, 0U); /* the program's ends are the program's alone */
    while (waitpid(inside, &status, 0) < 0 && errno == EINTR)
        continue;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* Wait until the program runs, or read why it does not. */
static int await_start(const struct ash_jail_opts *opts, pid_t pid, int pipe, struct ash_err *err)
{
    struct trouble trouble = {{0}, 0};
    ssize_t count;

    do {
        count = read(pipe, &trouble, sizeof(trouble));
    } while (count < 0 && errno == EINTR);
    if (count == 0) return 0;
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

int ash_jail_start(const struct ash_jail_opts *opts, pid_t *pid_out, struct ash_err *err)
{
    struct sock_fprog rules = {0};
    int pipe[2], rc = make_program(&rules);
    pid_t pid;

    if (rc < 0 || pipe2(pipe, O_CLOEXEC) < 0) {
        rc = rc < 0 ? rc : -errno;
        free(rules.filter);
        return ash_err_set(err, rc, "a jail cannot be prepared: %s", strerror(-rc));
    }
    pid = fork();
    if (pid == 0) enter(opts, &rules, pipe[1]);
    close(pipe[1]);
    free(rules.filter);
    rc = pid < 0 ? ash_err_set(err, -EAGAIN, "no process for a reward program") : await_start(opts, pid, pipe[0], err);
    close(pipe[0]);
    if (rc == 0) *pid_out = pid;
    return rc;
}
