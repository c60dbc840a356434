/* Two nodes with networks of their own, joined by rate-limited cables (veth, tbf): the real path between machines. The
 * namespaces belong to the processes, so nothing is left when they end, however they end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <sched.h>

#include "harness/fabric_ranks.h"

#define MEGABITS 400
#define AREA_BYTES ((size_t)4 << 20)
#define SECOND_NS 1000000000ull

/* A command in this process's network. */
static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...)
{
    char command[256];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    return system(command) == 0 ? 0 : -EIO;
}

static int lay_cable(const struct fabric_rank *member, int cable)
{
    int rc = 0;

    if (member->rank == 0)
        rc = shell("ip link add name cable%d type veth peer name cable%d netns %d", cable, cable,
                   (int)atomic_load(&member->meeting->words[1]));
    meet(member);
    if (rc == 0) rc = shell("ip addr add 10.%d.0.%zu/24 dev cable%d", 77 + cable, member->rank + 1, cable);
    if (rc == 0) rc = shell("ip link set cable%d up", cable);
    if (rc == 0) rc = shell("tc qdisc add dev cable%d root tbf rate %dmbit burst 64k latency 100ms", cable, MEGABITS);
    return rc;
}

/* The kernel takes its time to see that a cable has two ends. */
static int await_cable(int cable)
{
    uint64_t limit = ash_clock_ns() + PATIENCE_NS;

    while (shell("ip -o link show cable%d | grep -q 'state UP'", cable) < 0) {
        if (ash_clock_ns() > limit) return -ETIMEDOUT;
        usleep(5000);
    }
    return 0;
}

/* A node of one's own, and two cables to the other one. */
static int new_node(struct fabric_rank *member, struct ash_fabric_opts *opts)
{
    int rc = unshare(CLONE_NEWNET) < 0 ? -errno : shell("ip link set lo up");

    opts->node = member->rank == 0 ? "left" : "right";
    atomic_store(&member->meeting->words[member->rank], (uint64_t)getpid());
    meet(member);
    for (int cable = 0; cable < 2; cable++)
        if (lay_cable(member, cable) < 0) rc = -EIO;
    for (int cable = 0; cable < 2 && rc == 0; cable++)
        rc = await_cable(cable);
    meet(member);
    return rc;
}

/* How many of the cables carry the bytes, in equal parts. */
struct plan {
    struct ash_fabric_opts opts;
    int cables;
    bool strangers; /* they add each other themselves */
};

/* Bytes that have left through a cable. */
static uint64_t sent_bytes(int cable)
{
    char line[512], name[16];
    uint64_t sent = 0;
    FILE *table = fopen("/proc/self/net/dev", "r");

    snprintf(name, sizeof(name), "cable%d:", cable);
    while (table != NULL && fgets(line, sizeof(line), table) != NULL) {
        const char *at = strstr(line, name);

        if (at != NULL) sscanf(at + strlen(name), "%*u %*u %*u %*u %*u %*u %*u %*u %lu", &sent);
    }
    if (table != NULL) fclose(table);
    return sent;
}

/* Take one event other than DONE; false: none. */
static bool next_event(struct fabric_rank *member, struct ash_fabric_event *event)
{
    return ash_fabric_poll(member->fabric, event, 1) == 1 && event->kind != ASH_FABRIC_DONE;
}

static int send_areas(struct fabric_rank *member, struct ash_region *area, size_t count)
{
    const struct plan *plan = member->arg;
    uint64_t began = ash_clock_ns();
    struct ash_remote *remote = NULL;
    struct ash_fabric_event event;
    double rate;
    int used = 0;

    memset(ash_region_data(area), 0x5a, AREA_BYTES);
    CHECK(ash_remote_open(member->fabric, 1, &member->meeting->keys[1], &remote, NULL) == 0);
    for (size_t i = 0; i < count; i++) {
        CHECK(ash_fabric_write(member->fabric,
                               &(struct ash_transfer){.local = area, .remote = remote, .size_bytes = AREA_BYTES}) == 0);
        CHECK(ash_fabric_notify(member->fabric, 1, i) == 0);
    }
    while (!next_event(member, &event))
        CHECK(ash_clock_ns() - began < PATIENCE_NS);
    CHECK(event.kind == ASH_FABRIC_NOTIFIED && event.word == count);
    rate = (double)count * (double)AREA_BYTES * 8e3 / (double)(ash_clock_ns() - began);
    fprintf(stderr, "%.0f Mbit/s\n", rate);
    CHECK(rate < 1.2 * MEGABITS * plan->cables);
    for (int cable = 0; cable < 2; cable++)
        used += sent_bytes(cable) > count * AREA_BYTES / (size_t)plan->cables;
    CHECK(used == plan->cables);
    ash_remote_close(remote);
    return 0;
}

static int receive_areas(struct fabric_rank *member, struct ash_region *area, size_t count)
{
    uint64_t began = ash_clock_ns();
    const uint8_t *data = ash_region_data(area);

    for (size_t seen = 0; seen < count;) {
        struct ash_fabric_event event;

        CHECK(ash_clock_ns() - began < PATIENCE_NS);
        if (!next_event(member, &event)) continue;
        CHECK(event.kind == ASH_FABRIC_NOTIFIED && event.word == seen);
        seen++;
    }
    for (size_t i = 0; i < AREA_BYTES; i++)
        CHECK(data[i] == 0x5a);
    CHECK(ash_fabric_notify(member->fabric, 0, count) == 0);
    return 0;
}

static int carry(struct fabric_rank *member)
{
    struct ash_region *area = NULL;
    int rc;

    CHECK(ash_fabric_peer_path(member->fabric, (uint32_t)(1 - member->rank)) == ASH_FABRIC_OFI);
    CHECK(ash_region_alloc(member->fabric, AREA_BYTES, &area, NULL) == 0);
    ash_region_key(area, &member->meeting->keys[member->rank]);
    meet(member);
    rc = member->rank == 0 ? send_areas(member, area, 8) : receive_areas(member, area, 8);
    ash_region_close(area);
    return rc;
}

/* ---- loss -------------------------------------------------------------------------------------------------------- */

static int await_lost(struct fabric_rank *member, int status, uint64_t within_ns)
{
    uint64_t began = ash_clock_ns();
    struct ash_fabric_event event;

    while (!next_event(member, &event) || event.kind != ASH_FABRIC_LOST)
        CHECK(ash_clock_ns() - began < within_ns);
    fprintf(stderr, "lost after %.0f ms\n", (double)(ash_clock_ns() - began) / 1e6);
    CHECK(event.status == status);
    return 0;
}

/* The cable is cut: all messages are lost. Both sides notice. */
static int cut(struct fabric_rank *member)
{
    struct ash_fabric_event event;
    uint64_t began = ash_clock_ns();

    CHECK(ash_fabric_notify(member->fabric, (uint32_t)(1 - member->rank), 1) == 0);
    while (!next_event(member, &event))
        CHECK(ash_clock_ns() - began < PATIENCE_NS);
    CHECK(event.kind == ASH_FABRIC_NOTIFIED);
    began = ash_clock_ns();
    while (ash_clock_ns() - began < SECOND_NS / 2) /* what was said has arrived on both sides */
        CHECK(!next_event(member, &event));
    meet(member);
    if (member->rank == 0) CHECK(shell("ip link set cable0 down") == 0);
    ash_fabric_notify(member->fabric, (uint32_t)(1 - member->rank), 2);
    return await_lost(member, -ETIMEDOUT, 8 * SECOND_NS);
}

static int kill_one(struct fabric_rank *member)
{
    meet(member);
    if (member->rank == 1) raise(SIGKILL);
    return await_lost(member, -ECONNRESET, 2 * SECOND_NS);
}

/* ---- a peer that is far away ------------------------------------------------------------------------------------- */

/* Let nothing out through the first cable but the smallest packets, which find neighbours. */
static int hold_back(bool back)
{
    return shell("tc qdisc replace dev cable0 root tbf rate %dmbit burst %s latency 100ms", MEGABITS,
                 back ? "50" : "64k");
}

/* The first answer does not come at once, or never: who is not connected yet is not gone. */
static int answer_late(struct fabric_rank *member)
{
    uint32_t other = (uint32_t)(1 - member->rank);
    struct ash_fabric_event event;
    uint64_t began;

    CHECK(member->rank == 0 || hold_back(true) == 0);
    meet(member);
    CHECK(member->rank == 1 || ash_fabric_add_peer(member->fabric, other, &member->meeting->addrs[other], NULL) == 0);
    began = ash_clock_ns();
    while (member->rank == 0 && ash_clock_ns() - began < SECOND_NS / 2)
        CHECK(!next_event(member, &event));
    meet(member);
    CHECK(member->rank == 0 || hold_back(false) == 0);
    CHECK(member->rank == 0 || ash_fabric_add_peer(member->fabric, other, &member->meeting->addrs[other], NULL) == 0);
    CHECK(ash_fabric_notify(member->fabric, other, 7) == 0);
    began = ash_clock_ns();
    while (!next_event(member, &event))
        CHECK(ash_clock_ns() - began < PATIENCE_NS);
    CHECK(event.kind == ASH_FABRIC_NOTIFIED && event.word == 7);
    meet(member);
    return 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* In a process of its own, because libfabric remembers the interfaces that it saw first. */
static int try_all(void)
{
    struct ash_fabric *fabric = NULL;
    int rc = unshare(CLONE_NEWNET) < 0 ? -errno : shell("ip link set lo up");

    if (rc == 0) rc = shell("ip link add name ca type veth peer name cb 2>/dev/null");
    if (rc == 0) rc = shell("tc qdisc add dev ca root tbf rate 1mbit burst 128k latency 50ms 2>/dev/null");
    if (rc == 0) rc = ash_fabric_open(&(struct ash_fabric_opts){.path = ASH_FABRIC_OFI}, &fabric, NULL);
    ash_fabric_close(fabric);
    return rc;
}

/* May this process make networks, and are the tools here? */
static bool permitted(void)
{
    int status = 1;
    pid_t child = fork();

    if (child == 0) _exit(try_all() < 0);
    waitpid(child, &status, 0);
    return status == 0;
}

static void run_plan(const struct plan *plan, int (*run)(struct fabric_rank *), int kills)
{
    struct fabric_ranks ranks = {
        .size = 2, .opts = plan->opts, .strangers = plan->strangers, .prepare = new_node, .run = run, .arg = plan};
    int killed = 0;

    if (!permitted()) {
        print_message("skipped: no network namespaces, veth, tbf or libfabric here\n");
        skip();
    }
    assert_int_equal(run_fabric_ranks(&ranks, &killed), 0);
    assert_int_equal(killed, kills);
}

static void test_one_rail(void **state)
{
    (void)state;
    run_plan(&(struct plan){.opts = {.provider = "tcp"}, .cables = 1}, carry, 0);
}

static void test_two_rails(void **state)
{
    (void)state;
    run_plan(&(struct plan){.opts = {.provider = "tcp", .interface = "cable0,cable1"}, .cables = 2}, carry, 0);
}

static void test_cut(void **state)
{
    (void)state;
    run_plan(&(struct plan){.opts = {.provider = "tcp", .interface = "cable0", .silence_ms = 2000}}, cut, 0);
}

static void test_kill(void **state)
{
    (void)state;
    run_plan(&(struct plan){.opts = {.provider = "tcp"}}, kill_one, 1);
}

static void test_late_answer(void **state)
{
    (void)state;
    run_plan(&(struct plan){.opts = {.provider = "tcp", .interface = "cable0"}, .strangers = true}, answer_late, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_rail), cmocka_unit_test(test_two_rails),
                                       cmocka_unit_test(test_cut), cmocka_unit_test(test_kill),
                                       cmocka_unit_test(test_late_answer)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
