/* gpu_share host|cuda|cuda:N [MEGABYTES]: memory that one process writes and another reads. Three owners share some: one
 * exits at once, one is killed, one goes without having shared anything. All of them are gone before it is opened. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/hash.h"
#include "infra/device/cuda.h"
#include "infra/device/shared_memory.h"

enum owner { EXITS, IS_KILLED, SHARES_NOTHING, OWNERS };

static const char *const owners[OWNERS] = {"exited", "was killed", "shared nothing"};

/* The words that owner `seed` writes. */
static void draw(uint64_t *words, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        words[i] = ash_hash_mix(i ^ seed << 40);
}

static int move(struct ash_cuda *cuda, void *dst, const void *src, size_t size_bytes)
{
    return (cuda != NULL ? ash_memory_cuda : ash_memory_host).copy(dst, src, size_bytes);
}

static int fail(const char *what, const struct ash_err *err)
{
    fprintf(stderr, "gpu_share: error: %s: %s\n", what, err->text);
    return 1;
}

/* An owner's whole life. The driver is opened in its own process. */
static int own(int gpu, size_t count, enum owner kind, int socket)
{
    struct ash_cuda *cuda = NULL;
    struct ash_shared_memory *memory = NULL;
    struct ash_err err = {0};
    uint64_t *words;

    if (kind == SHARES_NOTHING) return 0;
    words = malloc(count * sizeof(*words));
    if (gpu >= 0 && ash_cuda_open(gpu, &cuda, &err) < 0) return fail("the owner", &err);
    if (ash_shared_memory_create(cuda, count * sizeof(*words), &memory, &err) < 0) return fail("the owner", &err);
    if (words == NULL) return 1;
    draw(words, count, kind);
    if (move(cuda, ash_shared_memory_data(memory), words, count * sizeof(*words)) < 0) return 1;
    if (ash_shared_memory_send(memory, socket, &err) < 0) return fail("the owner", &err);
    if (kind == IS_KILLED) raise(SIGKILL);
    ash_shared_memory_close(memory);
    ash_cuda_close(cuda);
    free(words);
    return 0;
}

/* What an owner left: is it what that has written? Then others can write there, too. */
static int read_back(struct ash_cuda *cuda, size_t count, enum owner kind, int socket)
{
    struct ash_shared_memory *memory = NULL;
    struct ash_err err = {0};
    size_t bytes = count * sizeof(uint64_t);
    uint64_t *words = malloc(2 * bytes);
    int rc = ash_shared_memory_receive(cuda, socket, &memory, &err);

    if (words == NULL) return 1;
    if (kind == SHARES_NOTHING) {
        free(words);
        return rc == -ECONNRESET ? 0 : fail("of an owner that shared nothing", &err);
    }
    if (rc < 0) return fail("the reader", &err);
    draw(words + count, count, kind);
    if (ash_shared_memory_bytes(memory) != bytes || move(cuda, words, ash_shared_memory_data(memory), bytes) < 0 ||
        memcmp(words, words + count, bytes) != 0) {
        fprintf(stderr, "gpu_share: error: other bytes than the owner wrote\n");
        return 1;
    }
    draw(words, count, OWNERS);
    draw(words + count, count, OWNERS);
    if (move(cuda, ash_shared_memory_data(memory), words, bytes) < 0) return 1;
    memset(words, 0, bytes);
    if (move(cuda, words, ash_shared_memory_data(memory), bytes) < 0 || memcmp(words, words + count, bytes) != 0)
        return 1;
    printf("%zu bytes of an owner that %s\n", bytes, owners[kind]);
    ash_shared_memory_close(memory);
    free(words);
    return 0;
}

/* Start an owner and wait for its end. Returns the socket that it has written to, or -1. */
static int run_owner(int gpu, size_t count, enum owner kind)
{
    int pair[2], status = 0;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) return -1;
    pid = fork();
    if (pid == 0) {
        close(pair[0]);
        exit(own(gpu, count, kind, pair[1]));
    }
    close(pair[1]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    if (kind == IS_KILLED ? !WIFSIGNALED(status) : status != 0) return -1;
    return pair[0];
}

int main(int argc, char **argv)
{
    size_t count = (size_t)(argc > 2 ? atoi(argv[2]) : 64) << 17;
    struct ash_cuda *cuda = NULL;
    struct ash_err err = {0};
    int gpu = -1, sockets[OWNERS], rc = 0;

    if (argc < 2 || count == 0) {
        fprintf(stderr, "usage: gpu_share host|cuda|cuda:N [MEGABYTES]\n");
        return 2;
    }
    if (strncmp(argv[1], "cuda", 4) == 0) gpu = argv[1][4] == ':' ? atoi(argv[1] + 5) : 0;
    /* all owners first: a process that has opened the driver can start no other that uses it */
    for (int kind = 0; kind < OWNERS; kind++) {
        sockets[kind] = run_owner(gpu, count, (enum owner)kind);
        if (sockets[kind] < 0) return 1;
    }
    if (gpu >= 0 && ash_cuda_open(gpu, &cuda, &err) < 0) return fail("the reader", &err);
    for (int kind = 0; kind < OWNERS && rc == 0; kind++) {
        rc = read_back(cuda, count, (enum owner)kind, sockets[kind]);
        close(sockets[kind]);
    }
    ash_cuda_close(cuda);
    return rc;
}
