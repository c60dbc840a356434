/* A main() for fuzz targets without libFuzzer: runs the seed corpus, then mutations of it, for a bounded
 * time. No coverage feedback; a fixed seed, so that a failure comes back. The input that crashed or hung is written to
 * crash-<target>. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);
/* Present when a sanitizer is linked: it ends the process without a signal, but calls this first. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

#define SEEDS_MAX 4096
#define SEED_BYTES_MAX ((size_t)16 << 20)
#define STACKED_MUTATIONS_MAX 6
#define HANG_SECONDS 20

struct input {
    uint8_t *data;
    size_t size_bytes;
};

static struct {
    uint64_t seed;
    long long max_seconds, max_len, max_runs, rss_limit_mb;
} opts = {.seed = 1, .max_seconds = 3, .max_len = 65536, .max_runs = LLONG_MAX, .rss_limit_mb = 4096};

static struct input seeds[SEEDS_MAX];
static size_t seed_count;

static char crash_path[PATH_MAX];
static const uint8_t *volatile current_data;
static volatile size_t current_bytes;
static volatile sig_atomic_t running;
static volatile uint64_t run_count;

/* ---- the input that did it --------------------------------------------------------------------------------------- */

static void dump_current(void)
{
    static const char note[] = "fuzz: the input is in ";
    int fd;

    if (!running) return;
    running = 0;
    fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) return;
    for (size_t done = 0; done < current_bytes;) {
        ssize_t n = write(fd, current_data + done, current_bytes - done);
        if (n <= 0) break;
        done += (size_t)n;
    }
    close(fd);
    if (write(STDERR_FILENO, note, sizeof(note) - 1) < 0 || write(STDERR_FILENO, crash_path, strlen(crash_path)) < 0 ||
        write(STDERR_FILENO, "\n", 1) < 0)
        return;
}

static void on_crash(int number)
{
    dump_current();
    signal(number, SIG_DFL);
    raise(number);
}

/* Once a second: has the same input been running for too long? */
static void on_tick(int number)
{
    static const char note[] = "fuzz: an input takes too long\n";
    static uint64_t last;
    static int ticks;

    (void)number;
    ticks = running && run_count == last ? ticks + 1 : 0;
    last = run_count;
    if (ticks < HANG_SECONDS) return;
    if (write(STDERR_FILENO, note, sizeof(note) - 1) > 0) dump_current();
    signal(SIGABRT, SIG_DFL);
    abort();
}

static void install_handlers(const char *program)
{
    static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    size_t own_count = ASH_COUNT(fatal);
    static char stack[65536]; /* of its own, so that an overflown stack is reported too */
    struct sigaction crash = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK}, tick = {.sa_handler = on_tick};
    struct itimerval second = {.it_interval = {.tv_sec = 1}, .it_value = {.tv_sec = 1}};
    const char *slash = strrchr(program, '/');

    snprintf(crash_path, sizeof(crash_path), "crash-%s", slash == NULL ? program : slash + 1);
    if (__sanitizer_set_death_callback !=
        NULL) { /* it explains a bad access better than we can; an abort it leaves alone */
        __sanitizer_set_death_callback(dump_current);
        own_count = 1;
    }
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof(stack)}, NULL);
    for (size_t i = 0; i < own_count; i++)
        sigaction(fatal[i], &crash, NULL);
    sigaction(SIGALRM, &tick, NULL);
    setitimer(ITIMER_REAL, &second, NULL);
}

/* ---- mutations --------------------------------------------------------------------------------------------------- */

static uint64_t draw_counter;

static size_t below(size_t bound)
{
    return (size_t)ash_rng_below(opts.seed, 0, draw_counter++, bound);
}

/* Replace cut bytes at `at` by more bytes (undefined when source is NULL); the input stays within the buffer of
 * capacity bytes. */
static void edit(struct input *input, size_t capacity, size_t at, size_t cut, const uint8_t *source, size_t more)
{
    if (input->size_bytes - cut + more > capacity) more = capacity - (input->size_bytes - cut);
    memmove(input->data + at + more, input->data + at + cut, input->size_bytes - at - cut);
    if (source != NULL && more > 0) memmove(input->data + at, source, more);
    input->size_bytes = input->size_bytes - cut + more;
}

static void put_integer(struct input *input)
{
    static const uint64_t values[] = {0,
                                      1,
                                      0x7f,
                                      0x80,
                                      0xff,
                                      0x7fff,
                                      0x8000,
                                      0xffff,
                                      0x10000,
                                      0x7fffffff,
                                      0x80000000,
                                      0xffffffff,
                                      0x100000000,
                                      INT64_MAX,
                                      UINT64_MAX,
                                      (uint64_t)1 << 63,
                                      (uint64_t)1 << 62};
    size_t width = (size_t)1 << below(4);
    uint64_t value = values[below(ASH_COUNT(values))] + below(3) - 1;

    if (input->size_bytes < width) return;
    size_t at = below(input->size_bytes - width + 1);
    for (size_t i = 0; i < width; i++)
        input->data[at + i] = (uint8_t)(value >> 8 * i);
}

static void put_text(struct input *input, size_t capacity)
{
    static const char *const words[] = {"\"",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ":",
                                        ",",
                                        "\n",
                                        "\t",
                                        "-1",
                                        "0",
                                        "1e999",
                                        "null",
                                        "true",
                                        "18446744073709551616",
                                        "9223372036854775807",
                                        "0.1",
                                        "\\u0000",
                                        "\\ud800",
                                        "\xff",
                                        "\xe2\x82",
                                        "#",
                                        "&a",
                                        "*a",
                                        "- ",
                                        "  ",
                                        "%",
                                        "../",
                                        "F32",
                                        "<0x00>"};
    const char *word = words[below(ASH_COUNT(words))];

    edit(input, capacity, below(input->size_bytes + 1), 0, (const uint8_t *)word, strlen(word));
}

/* A piece of another seed, in the place of a piece of this one. */
static void cross(struct input *input, size_t capacity)
{
    const struct input *other = &seeds[below(seed_count)];
    size_t from = below(other->size_bytes + 1), length = below(other->size_bytes - from + 1);
    size_t at = below(input->size_bytes + 1), cut = below(input->size_bytes - at + 1);

    edit(input, capacity, at, cut, other->data + from, length);
}

static void insert_bytes(struct input *input, size_t capacity)
{
    uint8_t bytes[16];
    size_t count = 1 + below(sizeof(bytes)), same = below(2);

    for (size_t i = 0; i < count; i++)
        bytes[i] = same && i > 0 ? bytes[0] : (uint8_t)below(256);
    edit(input, capacity, below(input->size_bytes + 1), 0, bytes, count);
}

static void mutate(struct input *input, size_t capacity)
{
    size_t size_bytes = input->size_bytes, at = size_bytes > 0 ? below(size_bytes) : 0;

    switch (below(8)) {
    case 0:
        if (size_bytes > 0) input->data[at] ^= (uint8_t)(1 << below(8));
        break;
    case 1:
        if (size_bytes > 0) input->data[at] = (uint8_t)below(256);
        break;
    case 2:
        insert_bytes(input, capacity);
        break;
    case 3:
        edit(input, capacity, at, size_bytes > 0 ? 1 + below(size_bytes - at) : 0, NULL, 0);
        break;
    case 4:
        cross(input, capacity);
        break;
    case 5:
        put_integer(input);
        break;
    case 6:
        put_text(input, capacity);
        break;
    default:
        input->size_bytes = at;
        break;
    }
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* On a copy of exactly that size, so that a sanitizer sees a read beyond it. */
static int run_one(const uint8_t *data, size_t size_bytes)
{
    uint8_t *copy = malloc(size_bytes > 0 ? size_bytes : 1);

    if (copy == NULL) return -ENOMEM;
    memcpy(copy, data, size_bytes);
    current_data = data;
    current_bytes = size_bytes;
    run_count++;
    running = 1;
    LLVMFuzzerTestOneInput(copy, size_bytes);
    running = 0;
    free(copy);
    return 0;
}

static int run_mutations(uint64_t end_ns)
{
    size_t capacity = (size_t)opts.max_len;
    struct input input = {.data = malloc(capacity + 1)};
    int rc = input.data == NULL ? -ENOMEM : 0;

    while (rc == 0 && (long long)run_count < opts.max_runs && ash_clock_ns() < end_ns) {
        const struct input *seed = &seeds[below(seed_count)];
        input.size_bytes = seed->size_bytes < capacity ? seed->size_bytes : capacity;
        memcpy(input.data, seed->data, input.size_bytes);
        for (size_t i = 1 + below(STACKED_MUTATIONS_MAX); i > 0; i--)
            mutate(&input, capacity);
        rc = run_one(input.data, input.size_bytes);
    }
    free(input.data);
    return rc;
}

/* ---- seeds and arguments ----------------------------------------------------------------------------------------- */

static int add_seed(const char *path, struct ash_err *err)
{
    char *data = NULL;
    size_t size_bytes = 0;
    int rc;

    if (seed_count == SEEDS_MAX) return ash_err_set(err, -E2BIG, "more than %d seeds", SEEDS_MAX);
    rc = ash_file_read(path, SEED_BYTES_MAX, &data, &size_bytes, err);
    if (rc == 0) seeds[seed_count++] = (struct input){.data = (uint8_t *)data, .size_bytes = size_bytes};
    return rc;
}

static int add_folder(const char *path, struct ash_err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, alphasort), rc = 0;

    if (count < 0) return ash_err_set(err, -errno, "cannot read folder '%s': %s", path, strerror(errno));
    for (int i = 0; i < count; i++) {
        char file[PATH_MAX];
        if (rc == 0 && entries[i]->d_name[0] != '.') rc = ash_path_join(file, sizeof(file), path, entries[i]->d_name);
        if (rc == 0 && entries[i]->d_name[0] != '.') rc = add_seed(file, err);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static bool take_number(const char *arg, const char *name, long long *value_out)
{
    size_t length = strlen(name);

    if (strncmp(arg, name, length) != 0 || arg[length] != '=') return false;
    *value_out = strtoll(arg + length + 1, NULL, 10);
    return true;
}

/* Flags as libFuzzer has them; those that mean nothing here are passed over. */
static int take_argument(const char *arg, struct ash_err *err)
{
    struct stat info;
    long long seed;

    if (take_number(arg, "-seed", &seed)) opts.seed = (uint64_t)seed;
    if (take_number(arg, "-max_total_time", &opts.max_seconds) || take_number(arg, "-max_len", &opts.max_len) ||
        take_number(arg, "-runs", &opts.max_runs) || take_number(arg, "-rss_limit_mb", &opts.rss_limit_mb) ||
        arg[0] == '-')
        return 0;
    if (stat(arg, &info) == 0 && S_ISDIR(info.st_mode)) return add_folder(arg, err);
    return add_seed(arg, err);
}

/* A parser that asks for absurd memory must get NULL, not the machine's last page. Sanitizers reserve too much for such
 * a limit. */
static void limit_memory(void)
{
    struct rlimit limit = {.rlim_cur = (rlim_t)opts.rss_limit_mb << 20, .rlim_max = RLIM_INFINITY};

    if (opts.rss_limit_mb > 0 && __sanitizer_set_death_callback == NULL) setrlimit(RLIMIT_AS, &limit);
}

int main(int argc, char **argv)
{
    static uint8_t nothing;
    struct ash_err err = {0};
    uint64_t start_ns = ash_clock_ns();
    int rc = 0;

    for (int i = 1; i < argc && rc == 0; i++)
        rc = take_argument(argv[i], &err);
    if (rc == 0 && opts.max_len < 1) rc = ash_err_set(&err, -EINVAL, "-max_len must be at least 1");
    if (rc < 0) {
        fprintf(stderr, "fuzz: %s\n", err.text);
        return 2;
    }
    if (seed_count == 0) seeds[seed_count++] = (struct input){.data = calloc(1, 1)};
    limit_memory();
    install_handlers(argv[0]);
    rc = run_one(&nothing, 0);
    for (size_t i = 0; i < seed_count && rc == 0; i++)
        rc = run_one(seeds[i].data, seeds[i].size_bytes);
    if (rc == 0) rc = run_mutations(start_ns + (uint64_t)opts.max_seconds * 1000000000u);
    double seconds = (double)(ash_clock_ns() - start_ns) * 1e-9;
    printf("fuzz: %zu seeds, %llu runs in %.1f s, %.0f runs/s\n", seed_count, (unsigned long long)run_count, seconds,
           (double)run_count / seconds);
    for (size_t i = 0; i < seed_count; i++)
        free(seeds[i].data);
    return rc == 0 ? 0 : 1;
}
